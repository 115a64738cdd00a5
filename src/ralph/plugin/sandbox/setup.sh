#!/usr/bin/env bash
# Sets up a Docker Sandbox for Ralph: the agent's login from a host directory, and the git identity.
#
#   docker sandbox exec -i -u root NAME bash -s -- "$HOME/.dclaude_state" < setup.sh
#   sbx exec -i -u root NAME bash -s -- "$HOME/.dclaude_state" < setup.sh
#
# The directory must have been passed to `create` as a workspace. The login stays there when the sandbox is removed.
# Ralph runs this each time it opens a sandbox; running it twice does no harm.
set -eu

state="${1:?missing: the directory that holds the login}"
user="${2:-agent}"
home="${3:-/home/$user}"

[ -d "$state" ] || { echo "$state is not in this sandbox" >&2; exit 3; }
mkdir -p "$state/.claude"
[ -s "$state/.claude.json" ] || echo '{}' >"$state/.claude.json" # Claude does not start with an empty file, which is not JSON

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
