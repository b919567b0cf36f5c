"""Claude Code, Codex and the Node SDKs against the gateway: `node.py WEIR_BINARY FOLDER`, the folder made by `node/install`."""
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import deviations
from stage import KEY, Count, Upstream, Weir
from upstream import MARK, MODELS, Providers, config

HERE = pathlib.Path(__file__).resolve().parent
AGENT_SECONDS = 120  # a coding agent starts in one; the rest is a busy machine
SDK_SECONDS = 240


def clean(folder, **more):
    """The environment of a program that must find nothing of this machine's own."""
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "NO_COLOR": "1", **more}


def ran(command, folder, seconds, **env):
    """What a program printed; it must end well."""
    done = subprocess.run([str(part) for part in command], cwd=folder, env=clean(folder, **env), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}"
    return done.stdout


def claude_code(modules, folder, weir, model):
    [binary] = [path for path in modules.glob("@anthropic-ai/claude-code-linux-*/claude") if "musl" not in str(path)]
    return ran([binary, "-p", "Say the word.", "--model", model, "--allowedTools", "Bash"], folder, AGENT_SECONDS, ANTHROPIC_BASE_URL=weir.url,
               ANTHROPIC_API_KEY=KEY, CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_AUTOUPDATER="1")


def codex(modules, folder, weir, model):
    (folder / ".codex").mkdir()
    (folder / ".codex/config.toml").write_text(
        f'model = "{model}"\nmodel_provider = "weir"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n[model_providers.weir]\n'
        f'name = "weir"\nbase_url = "{weir.url}/v1"\nenv_key = "WEIR_KEY"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n')
    return ran([node(modules), modules / "@openai/codex/bin/codex.js", "exec", "--skip-git-repo-check", "Say the word."], folder, AGENT_SECONDS, WEIR_KEY=KEY)


def node(modules):
    """The Node that the clients ask for: newer than Debian's."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    return modules / f"node-linux-{machine}/bin/node"


def sdks(count, modules, weir, checks):
    """Runs sdk.mjs, whose lines are checks too."""
    script = modules.parent / "sdk.mjs"
    shutil.copy(HERE / "node/sdk.mjs", script)
    done = subprocess.run([str(node(modules)), str(script), weir.url, KEY], input=json.dumps(checks), text=True, capture_output=True,
                          timeout=SDK_SECONDS, env=clean(modules.parent))
    count.passed += sum(line.startswith("ok ") for line in done.stdout.splitlines())
    count.failed += sum(line.startswith("FAILED ") for line in done.stdout.splitlines()) + (done.returncode not in (0, 1))
    print(done.stdout, done.stderr[-2000:], sep="", end="", flush=True)


def main(binary, folder):
    count, modules = Count(), pathlib.Path(folder).resolve() / "node_modules"
    providers = Providers()

    def play(method, path, headers, body):
        either = deviations.play if path.startswith("/deviant/") else providers.play
        return either(method, path, headers, body)
    with Upstream(play) as upstream, Weir(binary, config(upstream.url) + deviations.config(upstream.url)) as weir:
        for agent in (claude_code, codex):
            for wire in MODELS:
                def run():
                    with tempfile.TemporaryDirectory(prefix="weir-agent-") as home:
                        said = agent(modules, pathlib.Path(home), weir, f"m-{wire}")
                    assert MARK in said, f"{said!r}, refused: {providers.refused[-3:]}"
                count.check(f"{agent.__name__} plays a tool round trip over {wire}", run)
        sdks(count, modules, weir, {"wires": list(MODELS), "mark": MARK, "deviations": deviations.table()})
    count.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
