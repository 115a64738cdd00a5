"""Publishing, and taking back what is published: packages, images, repositories, releases, sites."""

from __future__ import annotations

from ralph.guard.model import Rule

CATEGORY = "publishing"
_PACKAGE = "It publishes a package, or takes one back. Leave that to the user; a dry run is allowed."
_IMAGE = "It publishes an image. Build it, and leave publishing to the user."
_HUB = "It changes the project's home on the net for everybody. Leave that to the user."
_SITE = "It puts something on the net. Leave deployments to the user."

RULES = (
    Rule("npm-publish", CATEGORY, _PACKAGE, "npm|pnpm|yarn|bun|lerna|vsce|ovsx|jsr|deno publish|unpublish"),
    Rule("yarn-publish", CATEGORY, _PACKAGE, "yarn npm publish"),
    Rule("npm-registry", CATEGORY, _PACKAGE, "npm|pnpm deprecate|owner|dist-tag|access|star"),
    Rule("workspace-publish", CATEGORY, _PACKAGE, "pnpm|yarn|npm ~publish !--dry-run -r|--recursive|-ws|--workspaces"),
    Rule("changeset", CATEGORY, _PACKAGE, "changeset publish"),
    Rule("release-tools", CATEGORY, _PACKAGE, "semantic-release|release-it|np|standard-version-publish !--dry-run|-d"),
    Rule("goreleaser", CATEGORY, _PACKAGE, "goreleaser release !--snapshot|--skip=publish|--skip-publish"),
    Rule("twine", CATEGORY, _PACKAGE, "twine upload"),
    Rule("python-publish", CATEGORY, _PACKAGE, "poetry|uv|flit|hatch|pdm|maturin|rye publish"),
    Rule("maturin-upload", CATEGORY, _PACKAGE, "maturin|anaconda|conda upload"),
    Rule("setup-upload", CATEGORY, _PACKAGE, lambda command, place: "setup.py" in command.args and bool({"upload", "register"} & set(command.args))),
    Rule("cargo-publish", CATEGORY, _PACKAGE, "cargo publish|yank|owner"),
    Rule("gem-push", CATEGORY, _PACKAGE, "gem push|yank|owner"),
    Rule("gem-release", CATEGORY, _PACKAGE, "rake|bundle release"),
    Rule("maven-deploy", CATEGORY, _PACKAGE, "mvn|mvnw|./mvnw ~deploy|deploy:*|release:perform|release:prepare"),
    Rule("gradle-publish", CATEGORY, _PACKAGE, "gradle|gradlew ~publish|publishAllPublicationsTo*|*:publish|uploadArchives|publishPlugins|bintrayUpload"),
    Rule("sbt-publish", CATEGORY, _PACKAGE, "sbt ~publish|publishSigned|release"),
    Rule("nuget-push", CATEGORY, _PACKAGE, "dotnet nuget push|delete"),
    Rule("nuget", CATEGORY, _PACKAGE, "nuget push|delete"),
    Rule("pods", CATEGORY, _PACKAGE, "pod trunk push|delete|deprecate"),
    Rule("hex", CATEGORY, _PACKAGE, "mix|rebar3 hex.publish|hex.retire|hex"),
    Rule("other-packages", CATEGORY, _PACKAGE, "dart|flutter pub publish !--dry-run|-n"),
    Rule("cabal", CATEGORY, _PACKAGE, "cabal|stack upload"),
    Rule("luarocks", CATEGORY, _PACKAGE, "luarocks upload"),
    Rule("snap", CATEGORY, _PACKAGE, "snapcraft upload|push|release"),
    Rule("image-push", CATEGORY, _IMAGE, "docker|podman|nerdctl|crane|skopeo|buildah|helm|oras|ko|docker-compose push"),
    Rule("compose-push", CATEGORY, _IMAGE, "docker compose|image|manifest push"),
    Rule("buildx-push", CATEGORY, _IMAGE, "docker|podman|nerdctl --push"),
    Rule("skopeo", CATEGORY, _IMAGE, "skopeo copy|delete|sync"),
    Rule("gh-release", CATEGORY, _HUB, "gh|glab release create|delete|edit|upload|delete-asset"),
    Rule("gh-repo", CATEGORY, _HUB, "gh|glab repo create|delete|edit|archive|unarchive|rename|transfer|sync|deploy-key"),
    Rule("gh-gist", CATEGORY, _HUB, "gh gist create|edit|delete"),
    Rule("gh-merge", CATEGORY, _HUB, "gh pr merge"),
    Rule("glab-merge", CATEGORY, _HUB, "glab mr merge"),
    Rule("gh-secrets", CATEGORY, _HUB, "gh secret|variable|ssh-key|gpg-key|ruleset|environment set|delete|add|remove"),
    Rule("gh-delete", CATEGORY, _HUB, "gh issue|pr|run|workflow|cache|label|project|codespace delete|disable|transfer"),
    Rule("gh-api-write", CATEGORY, _HUB, "gh|glab api --method=DELETE|-X=DELETE|-XDELETE|--method=PUT|--method=PATCH|-X=PUT|-X=PATCH|-XPUT|-XPATCH"),
    Rule("deploy", CATEGORY, _SITE, "netlify|firebase|fly|flyctl|serverless|sls|wrangler|eb|cdk|sam|amplify|now|railway|render|copilot|kamal|cap|dokku|surge|gh-pages deploy|publish|up|release"),
    Rule("site-tools", CATEGORY, _SITE, "surge|gh-pages|now"),
    Rule("vercel", CATEGORY, _SITE, "vercel !dev --prod|--production|-p"),
    Rule("vercel-deploy", CATEGORY, _SITE, "vercel deploy|promote|rollback"),
    Rule("heroku-release", CATEGORY, _SITE, "heroku container:release|container:push|releases:rollback"),
    Rule("wrangler-pages", CATEGORY, _SITE, "wrangler pages deploy|publish"),
    Rule("gcloud-deploy", CATEGORY, _SITE, "gcloud app|run|functions deploy"),
    Rule("npm-run-publish", CATEGORY, _PACKAGE, "npm|pnpm|yarn|bun run publish|release|deploy"),
    Rule("make-publish", CATEGORY, _PACKAGE, "make publish|release|deploy !-n|--dry-run"),
)
