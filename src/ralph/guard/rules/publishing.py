"""Publishing and unpublishing: packages, images, repositories, releases, sites."""

from __future__ import annotations

from ralph.guard.model import DenyRule

CATEGORY = "publishing"
_PACKAGE = "Publishes or unpublishes a package. Leave that to the user; a dry run is allowed."
_IMAGE = "Publishes an image. Build it and leave publishing to the user."
_HUB = "Changes the hosted repository for everyone. Leave that to the user."
_SITE = "Deploys to the internet. Leave deployments to the user."

RULES = (
    DenyRule(
        "publish-package",
        CATEGORY,
        _PACKAGE,
        (
            "npm|pnpm|yarn|bun|lerna|vsce|ovsx|jsr|deno publish|unpublish",
            "yarn npm publish",
            "npm|pnpm deprecate|owner|dist-tag|access|star",
            "changeset publish",
            "semantic-release|release-it|np|standard-version-publish !--dry-run|-d",
            "goreleaser release !--snapshot|--skip=publish|--skip-publish",
            "twine upload",
            "poetry|uv|flit|hatch|pdm|maturin|rye publish",
            "maturin|anaconda|conda upload",
            "cargo publish|yank|owner",
            "gem push|yank|owner",
            "rake|bundle release",
            "mvn|mvnw|./mvnw ~deploy|deploy:*|release:perform|release:prepare",
            "gradle|gradlew ~publish|publishAll*|publishToMavenCentral|publishToSonatype|publishAndRelease*|*:publish|uploadArchives|publishPlugins|bintrayUpload",
            "sbt ~publish|publishSigned|release",
            "dotnet nuget push|delete",
            "nuget push|delete",
            "pod trunk push|delete|deprecate",
            "mix|rebar3 hex.publish|hex.retire|hex",
            "dart|flutter pub publish !--dry-run|-n",
            "cabal|stack upload",
            "luarocks upload",
            "snapcraft upload|push|release",
            "npm|pnpm|yarn|bun run publish|release|deploy",
            "make|just|task publish|release|deploy !-n|--dry-run",
            "expo publish",
            "eas submit|update",
            "ghr",
            "fastlane ~release|deploy|beta|supply|deliver",
            "cap ~deploy|deploy:*",
        ),
    ),
    DenyRule(
        "setup-upload",
        CATEGORY,
        _PACKAGE,
        lambda command, context: (
            "setup.py" in command.args and bool({"upload", "register"} & set(command.args))
        ),
    ),
    DenyRule(
        "publish-image",
        CATEGORY,
        _IMAGE,
        (
            "docker|podman|nerdctl|crane|skopeo|buildah|helm|oras|ko|docker-compose push",
            "docker compose|image|manifest push",
            "docker|podman|nerdctl --push",
            "skopeo copy|delete|sync",
        ),
    ),
    DenyRule(
        "publish-release",
        CATEGORY,
        _HUB,
        (
            "gh|glab|hub release create|delete|edit|upload|delete-asset",
            "gh|glab repo create|delete|edit|archive|unarchive|rename|transfer|sync|deploy-key",
            "hub delete|sync",
            "gh workflow run *release*|*publish*|*deploy*",
            "gh gist create|edit|delete",
            "gh pr merge",
            "glab mr merge",
            "gh secret|variable|ssh-key|gpg-key|ruleset|environment set|delete|add|remove",
            "gh issue|pr|run|workflow|cache|label|project|codespace delete|disable|transfer",
            "gh|glab api --method=DELETE|-X=DELETE|-XDELETE|--method=PUT|--method=PATCH|-X=PUT|-X=PATCH|-XPUT|-XPATCH",
        ),
    ),
    DenyRule(
        "deploy",
        CATEGORY,
        _SITE,
        (
            "netlify|firebase|fly|flyctl|serverless|sls|wrangler|eb|cdk|sam|amplify|now|railway|render|copilot|kamal|cap|dokku|surge|gh-pages deploy|publish|up|release",
            "surge|gh-pages|now",
            "vercel !dev --prod|--production|-p",
            "vercel deploy|promote|rollback",
            "heroku container:release|container:push|releases:rollback",
            "wrangler pages deploy|publish",
            "gcloud app|run|functions deploy",
        ),
    ),
)
