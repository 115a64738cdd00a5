"""Clouds and databases."""

from __future__ import annotations

import re

from ralph.guard.model import DenyRule
from ralph.guard.patterns import is_harmless, operands
from ralph.shell import paths
from ralph.shell.arguments import has_option
from ralph.shell.command import SimpleCommand
from ralph.shell.context import ShellContext
from ralph.shell.words import Word, words_of

CATEGORY = "cloud"
_CLIENTS = words_of(
    "psql mysql mariadb sqlite3 sqlite sqlcmd clickhouse-client clickhouse cqlsh duckdb cockroach bq"
    " snowsql pgcli mycli usql influx mongosh mongo wrangler sqlplus isql trino presto hive beeline"
    " impala-shell athena litecli turso planetscale pscale spanner supabase snow osql vsql monetdb"
    " libsql prisma rails php neo4j cypher-shell"
)
_SQL = (
    r"(?i)\bDROP\s+(?:DATABASE|TABLE|SCHEMA|VIEW|INDEX|USER|ROLE|COLUMN|KEYSPACE|MATERIALIZED|TABLESPACE|OWNED|COLLECTION|TYPE|FUNCTION|SEQUENCE|EXTENSION)\b"
    r"|\bTRUNCATE\b|\bCOPY\b[^;]{0,300}\bPROGRAM\b|xp_cmdshell|\bDETACH\s+DELETE\b|\bALTER\s+TABLE\s+\S+\s+DROP\b"
)
_ROWS = r"(?i)\b(?:DELETE\s+FROM\s+[^;]+|UPDATE\s+\S+\s+SET\s+[^;]+)"
_TRIVIAL = r"(?i)\bWHERE\s+(?:1\s*=\s*1|TRUE|1|'?(\w+)'?\s*=\s*'?\1'?)\s*(?:;|$)"
_MONGO = r"(?i)dropDatabase|\.drop\(|deleteMany\(\s*\{\s*\}|remove\(\s*\{\s*\}|dropUser|dropAllUsers|dropIndexes|dropCollection"
_MODELS = r"objects\.all\(\)\.delete\(|\.(?:delete|destroy)_all\b|\bdrop_all\("
"""The same in framework code, as typed into a framework's shell."""


def _sql(command: SimpleCommand, context: ShellContext) -> bool:
    is_framework = "manage.py" in (command.program, *(word.rpartition("/")[2] for word in command.args[:1]))
    if not (command.program in _CLIENTS or is_framework) or is_harmless(command):
        return False
    if command.program in ("sqlite3", "sqlite") and _is_scratch(command, context):
        return False
    texts = [
        *(word.partition("=")[2] if word.startswith("--") else word for word in command.args),
        command.stdin,
        command.code,
    ]
    return any(_destroys(text) for text in texts if len(text) > 5)


def _is_scratch(command: SimpleCommand, context: ShellContext) -> bool:
    """Whether the database is in memory or in a temporary file."""
    name = next(iter(operands(command)), Word(""))
    return name == ":memory:" or paths.zone_of(name, command.directory, context) == paths.TEMP


def _destroys(text: str) -> bool:
    text = re.sub(r"'[^']*'", "''", text)
    text = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text) if "SELECT" not in text[:7].upper() else text
    if re.search(_SQL, text) or re.search(_MONGO, text) or re.search(_MODELS, text):
        return True
    for match in re.finditer(_ROWS, text):
        if not re.search(r"\bWHERE\b", match[0], re.IGNORECASE) or re.search(_TRIVIAL, match[0]):
            return True
    return False


def _redis(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program not in ("redis-cli", "valkey-cli", "keydb-cli"):
        return False
    words = [word.upper() for word in operands(command)] + command.stdin.upper().split()
    bad = {"FLUSHALL", "FLUSHDB", "SHUTDOWN", "DEBUG", "SLAVEOF", "REPLICAOF", "SWAPDB"}
    if (
        "FLUSHALL" in " ".join(words)
        or bad & set(words)
        or ("CONFIG" in words and "SET" in words)
        or ("SCRIPT" in words and "FLUSH" in words)
    ):
        return True
    return "xargs" in command.wrappers and bool({"DEL", "UNLINK"} & set(words))


_VERBS = (
    r"^(?:delete|terminate|remove|deregister|purge|destroy|stop|disable|revoke|detach|reboot|release|drop|reset|cancel|shutdown"
    r"|deactivate|schedule-key-deletion|put-bucket-(?:policy|acl)|modify-db|attach-\w+-policy|put-\w+-policy|create-access-key|wipe|rm|rb)(?:-|$)"
)


def _aws(command: SimpleCommand, context: ShellContext) -> bool:
    if command.program != "aws" or is_harmless(command):
        return False
    words = operands(command)[:3]
    if words[:1] == ["s3"]:
        return words[1:2] in (["rm"], ["rb"], ["mv"]) or (
            words[1:2] == ["sync"] and has_option(command, "--delete")
        )
    return any(re.match(_VERBS, word) for word in words[1:2])


def _gcp_azure(command: SimpleCommand, context: ShellContext) -> bool:
    """Match a destructive verb. It is the last of the first few operands."""
    if command.program not in words_of(
        "gcloud az doctl linode-cli oci ibmcloud hcloud scw civo exo openstack aliyun yc"
    ) or is_harmless(command):
        return False
    bad = words_of(
        "delete destroy purge remove reset deallocate terminate delete-instances"
        " remove-iam-policy-binding add-iam-policy-binding set-iam-policy stop rm wipe undelete disable"
        " delete-batch power-off rebuild reboot"
    )
    return any(word in bad for word in operands(command)[:6])


def _scale_down(command: SimpleCommand, context: ShellContext) -> bool:
    return (
        command.program in ("kubectl", "oc")
        and not {"scale", "patch"}.isdisjoint(command.args)
        and (has_option(command, "--replicas=0") or bool(re.search(r"replicas\W{1,3}0\b", command.code)))
    )


def _migration(command: SimpleCommand, context: ShellContext) -> bool:
    """Framework tasks that drop or reset the database."""
    words = [*operands(command)]
    names = frozenset(
        words_of(
            "db:drop db:drop:all db:reset db:purge db:migrate:reset db:schema:load db:structure:load"
            " db:rollback:all"
        )
    )
    names |= frozenset(
        words_of(
            "migrate:fresh migrate:reset db:wipe migrate:refresh ecto.drop ecto.reset flush reset_db sqlflush"
        )
    )
    names |= frozenset(
        words_of(
            "doctrine:database:drop doctrine:schema:drop schema:drop doctrine:fixtures:load db:seed:undo:all"
            " db:migrate:undo:all"
        )
    )
    names |= {"ecto.rollback.all"}
    runners = words_of(
        "rails rake artisan php mix manage.py console sequelize sequelize-cli typeorm bin/rails"
        " django-admin spring python"
    )
    if not (command.program in runners or command.program.rstrip("0123456789.") == "python") or is_harmless(
        command
    ):
        return False
    found = names & set(words)
    if (
        found == {"flush"}
        and not any("manage.py" in word for word in [*words, command.program])
        and command.program != "django-admin"
    ):
        return False
    zero = "migrate" in words and "zero" in words
    return bool(found) or zero


_CLOUD = "Deletes or stops cloud resources. Inspect them or write a plan, and leave the change to the user."
_INFRA = "Changes live infrastructure. Create a plan and leave applying it to the user."
_DATA = "Destroys data. Work on a copy, or leave it to the user."

RULES = (
    DenyRule("aws-delete", CATEGORY, _CLOUD, _aws),
    DenyRule("cloud-delete", CATEGORY, _CLOUD, _gcp_azure),
    DenyRule(
        "cloud-tools",
        CATEGORY,
        _CLOUD,
        (
            "gsutil|s3cmd|mc|b2|s5cmd rm|rb|del|delete-file-version|delete-bucket|--recursive|rewrite|iam",
            "rclone delete|purge|sync|rmdirs|cleanup|move",
            "bq rm",
            "kubectl|oc|k3s delete|drain|taint",
            "k3s|microk8s|minikube kubectl delete",
            "kubectl|oc replace --force",
            "kubectl apply --prune",
            "helm uninstall|delete|rollback|del|un",
            "argocd|flux app|delete|uninstall|suspend delete|terminate-op|rollback|kustomization|source",
            "heroku apps:destroy|pg:reset|addons:destroy|pg:killall|ps:scale|domains:remove|config:unset|pipelines:destroy|destroy|apps:rename|ps:stop|maintenance:on|access:remove|pg:push",
            "fly|flyctl apps|machine|machines|volumes|postgres|secrets destroy|delete|unset|stop|kill|remove",
            "fly|flyctl destroy|suspend",
            "vercel rm|remove|teams",
            "vercel env|domains|project|alias|secrets rm|remove",
            "netlify sites:delete|env:unset|functions:delete",
            "wrangler delete|kv:namespace|r2|d1|secret delete",
            "wrangler delete",
            "firebase firestore:delete|functions:delete|projects:delete|database:remove|hosting:disable|apps:delete|auth:import",
            "supabase projects|functions|secrets|branches delete|unset",
            "nomad job|system|stop stop|gc",
        ),
    ),
    DenyRule("kubectl-scale", CATEGORY, _CLOUD, _scale_down),
    DenyRule(
        "infrastructure",
        CATEGORY,
        _INFRA,
        (
            "terraform|tofu|terragrunt destroy|apply|taint|force-unlock",
            "terraform|tofu|terragrunt state|workspace rm|mv|push|delete|replace-provider",
            "terragrunt run-all destroy|apply",
            "pulumi destroy|up|cancel|refresh",
            "pulumi stack rm",
            "cdk|sam|serverless|sls|copilot|eb|amplify|sst|eksctl|kops|cdktf destroy|delete|remove|terminate",
        ),
    ),
    DenyRule(
        "database-tools",
        CATEGORY,
        _DATA,
        (
            "supabase db reset|push --linked|--db-url",
            "supabase db reset",
            "dropdb|dropuser|pg_dropcluster|pg_resetwal|pg_resetxlog|initdb",
            "mysqladmin ~drop|shutdown|flush-*|kill",
            "pg_restore --clean|-c",
            "mongorestore --drop",
            "pscale|turso|neonctl|neon database|db|branch|branches|databases|projects|group delete|destroy|reset|restore",
            "prisma migrate reset",
            "prisma db push --force-reset|--accept-data-loss",
            "drizzle-kit drop",
            "alembic downgrade base",
            "flask db downgrade base",
            "knex migrate:rollback --all",
            "sequelize|sequelize-cli|typeorm db:drop|schema:drop|db:migrate:undo:all",
            "flyway|liquibase|dbmate|goose ~clean|drop-all|dropAll|drop|reset|down-to",
            "diesel|sqlx database drop|reset",
            "dotnet ef database drop",
            "etcdctl del",
            "vault delete|destroy",
            "influx delete",
            "consul kv|leave|force-leave delete",
            "kafka-topics|kafka-topics.sh|rabbitmqctl|kcat --delete|delete_queue|reset|purge_queue|stop_app",
            "rabbitmqctl reset|force_reset|delete_queue|purge_queue|stop|delete_vhost|delete_user",
        ),
    ),
    DenyRule(
        "sql",
        CATEGORY,
        "Destroys data in a database. Work on a copy, or leave it to the user.",
        _sql,
    ),
    DenyRule("redis", CATEGORY, _DATA, _redis),
    DenyRule("framework-drop", CATEGORY, _DATA, _migration),
    DenyRule(
        "elastic", CATEGORY, _DATA, lambda command, context: command.program == "curl" and _is_delete(command)
    ),
)


def _is_delete(command: SimpleCommand) -> bool:
    """`curl -X DELETE` to another host or to a search index."""
    words = command.args
    asks = any(word in ("-XDELETE", "--request=DELETE") for word in words) or any(
        word in ("-X", "--request") and number + 1 < len(words) and words[number + 1].upper() == "DELETE"
        for number, word in enumerate(words)
    )
    if not asks:
        return False
    urls = [word for word in words if "://" in word or word.startswith(("localhost", "127."))]
    return not all(any(local in url for local in ("localhost", "127.0.0.1", "[::1]")) for url in urls) or any(
        ":9200" in url for url in urls
    )
