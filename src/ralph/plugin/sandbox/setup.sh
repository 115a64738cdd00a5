#!/usr/bin/env bash
# Sets up a Docker Sandbox for Ralph: the agent's login from a directory of the host, and who commits.
#
#   docker sandbox exec -i -u root NAME bash -s -- "$HOME/.dclaude_state" < setup.sh
#   sbx exec -i -u root NAME bash -s -- "$HOME/.dclaude_state" < setup.sh
#
# The directory must have been given to `create` as a workspace. The login stays there when the sandbox is removed.
# Ralph does this itself each time it opens a sandbox; doing it twice does no harm.
set -eu

state="${1:?which directory holds the login}"
user="${2:-agent}"
home="${3:-/home/$user}"

[ -d "$state" ] || { echo "$state is not in this sandbox" >&2; exit 3; }
mkdir -p "$state/.claude"
[ -s "$state/.claude.json" ] || echo '{}' >"$state/.claude.json" # an empty file is no JSON: Claude would not start

for name in .claude .claude.json; do
	if [ "$(readlink "$home/$name" 2>/dev/null || true)" != "$state/$name" ]; then
		rm -rf "${home:?}/$name"
		ln -s "$state/$name" "$home/$name"
	fi
	chown -h "$user:$user" "$home/$name" 2>/dev/null || true
done

git config --file "$home/.gitconfig" user.email "ralph@localhost"
git config --file "$home/.gitconfig" user.name "Ralph Loop"
chown "$user:$user" "$home/.gitconfig" 2>/dev/null || true
