//! Presets: what is known of a provider before config says anything, shipped in the binary.

use super::fault::{At, Book};
use super::price;
use super::source;
use super::value::{Node, Shape, Table, Value, View};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every embedded preset by its name. One more is one more line here and its file.
pub(super) const EMBEDDED: &[(&str, &str)] = &[
    ("anthropic", include_str!("../../conf/providers/anthropic.toml")),
    ("azure", include_str!("../../conf/providers/azure.toml")),
    ("bedrock", include_str!("../../conf/providers/bedrock.toml")),
    ("cerebras", include_str!("../../conf/providers/cerebras.toml")),
    ("cohere", include_str!("../../conf/providers/cohere.toml")),
    ("copilot", include_str!("../../conf/providers/copilot.toml")),
    ("dashscope", include_str!("../../conf/providers/dashscope.toml")),
    ("deepseek", include_str!("../../conf/providers/deepseek.toml")),
    ("doubao", include_str!("../../conf/providers/doubao.toml")),
    ("fireworks", include_str!("../../conf/providers/fireworks.toml")),
    ("gemini", include_str!("../../conf/providers/gemini.toml")),
    ("groq", include_str!("../../conf/providers/groq.toml")),
    ("huggingface", include_str!("../../conf/providers/huggingface.toml")),
    ("hunyuan", include_str!("../../conf/providers/hunyuan.toml")),
    ("llamacpp", include_str!("../../conf/providers/llamacpp.toml")),
    ("lmstudio", include_str!("../../conf/providers/lmstudio.toml")),
    ("minimax", include_str!("../../conf/providers/minimax.toml")),
    ("mistral", include_str!("../../conf/providers/mistral.toml")),
    ("moonshot", include_str!("../../conf/providers/moonshot.toml")),
    ("nvidia", include_str!("../../conf/providers/nvidia.toml")),
    ("ollama", include_str!("../../conf/providers/ollama.toml")),
    ("openai", include_str!("../../conf/providers/openai.toml")),
    ("openrouter", include_str!("../../conf/providers/openrouter.toml")),
    ("perplexity", include_str!("../../conf/providers/perplexity.toml")),
    ("qianfan", include_str!("../../conf/providers/qianfan.toml")),
    ("qianfan-v1", include_str!("../../conf/providers/qianfan-v1.toml")),
    ("qwen", include_str!("../../conf/providers/qwen.toml")),
    ("sglang", include_str!("../../conf/providers/sglang.toml")),
    ("siliconflow", include_str!("../../conf/providers/siliconflow.toml")),
    ("together", include_str!("../../conf/providers/together.toml")),
    ("vertex", include_str!("../../conf/providers/vertex.toml")),
    ("vllm", include_str!("../../conf/providers/vllm.toml")),
    ("xai", include_str!("../../conf/providers/xai.toml")),
    ("zhipu", include_str!("../../conf/providers/zhipu.toml")),
];

/// What a preset's file may say: a provider's keys but credentials, and where those usually are.
pub(super) const PRESET: Shape = Shape {
    known: &[
        "wire",
        "base_url",
        "auth",
        "env",
        "key",
        "api_version",
        "timeouts",
        "retry",
        "failover",
        "breaker",
        "cooldown",
        "health",
        "pool",
        "idempotency_header",
        "headers",
        "params",
        "quirks",
        "errors",
        "region",
        "project",
        "location",
        "models",
    ],
    later: super::provider::LATER_KEYS,
};

/// A preset.
#[derive(Debug, Clone)]
pub(super) struct Preset {
    /// A provider's keys.
    pub table: Table,
    /// Usual environment variables of its key, the first that is set counts.
    pub env: Vec<String>,
    /// Credentials of several parts, as `api_keys` writes them; the first whose parts are all set
    /// counts where none of `env` is. `path:NAME` is the file that a variable names.
    pub parts: Vec<Node>,
    /// It also works without a key (`key = "optional"`).
    pub keyless: bool,
}

/// Presets by name.
pub(super) type Presets = BTreeMap<String, Preset>;

/// The embedded presets and those of the user's folders, whose files win over embedded ones.
pub(super) fn folders(
    book: &Book<'_>,
    folders: &[(At, PathBuf)],
    texts: &mut Vec<String>,
    globs: &mut Vec<PathBuf>,
) -> Presets {
    let mut all: Presets = EMBEDDED
        .iter()
        .filter_map(|(name, text)| Some(((*name).into(), embedded(book, name, text)?)))
        .collect();
    let mut own: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (at, folder) in folders {
        if !folder.is_dir() {
            book.fault(*at, "presets", format!("{} is no folder", folder.display()));
        }
        let pattern = folder.join("*.toml");
        for path in source::expand(&pattern) {
            let Some(name) = path.file_stem().map(|s| s.to_string_lossy().into_owned()) else {
                continue;
            };
            if let Some(other) = own.insert(name.clone(), path.clone()) {
                book.fault(*at, "presets", format!("{name} is in {} too", other.display()));
            }
            if let Some(preset) = from_file(book, &path, texts) {
                all.insert(name, preset);
            }
        }
        globs.push(pattern);
    }
    all
}

fn embedded(book: &Book<'_>, name: &str, text: &str) -> Option<Preset> {
    // Embedded files are not on disk: they are named in faults and not watched.
    let scratch = Book::new(book.env);
    let file = scratch.open(format!("preset {name}").into());
    let table = source::parse(&scratch, file, text);
    let preset = table.map(|table| split(&scratch, file, table));
    for fault in scratch.faults() {
        book.fault(At::default(), &fault.key, format!("preset {name}: {}", fault.message));
    }
    preset
}

fn from_file(book: &Book<'_>, path: &Path, texts: &mut Vec<String>) -> Option<Preset> {
    let file = book.open(path.to_owned());
    match source::read_for(book, path) {
        Ok(text) => {
            let table = source::parse(book, file, &text);
            texts.push(text);
            table.map(|table| split(book, file, table))
        }
        Err(why) => {
            book.hide();
            book.fault(At { file, line: 0 }, "", why);
            None
        }
    }
}

/// Looks at one preset's file by itself, as a provider that fills in what is the user's own.
pub(super) fn alone(book: &Book<'_>, path: &Path) {
    let Some(preset) = from_file(book, path, &mut Vec::new()) else { return };
    super::provider::alone(book, &preset);
}

/// Takes a preset's own keys from those of a provider.
fn split(book: &Book<'_>, file: usize, mut table: Table) -> Preset {
    let at = At { file, line: 1 };
    let view = View::new(book, &table, at, String::new(), &PRESET);
    let (env, parts) = usual(&view);
    let keyless =
        view.choice("key", &[("optional", true), ("required", false)], &[]).unwrap_or(false);
    for (name, entry) in view.named("models") {
        if let Value::Table(model) = &entry.node.value
            && let Some(price) = model.get("price")
        {
            price::unsourced(book, &price.node, &format!("models.{name:?}.price"));
        }
    }
    table.remove("env");
    table.remove("key");
    // Unknown keys are told here once, not again at each provider that uses the preset.
    table.retain(|key, _| PRESET.known.contains(&key.as_str()));
    Preset { table, env, parts, keyless }
}

/// `env`: variables of a whole credential, and of the parts of one.
fn usual(v: &View<'_>) -> (Vec<String>, Vec<Node>) {
    let (mut env, mut parts) = (Vec::new(), Vec::new());
    let Some(node) = v.get("env") else { return (env, parts) };
    let Value::List(items) = &node.value else {
        v.fault("env", format!("a list is needed here, not {}", node.value.kind()));
        return (env, parts);
    };
    for item in items {
        match &item.value {
            Value::Text(name) if !name.is_empty() => env.push(name.clone()),
            Value::Table(_) => parts.push(item.clone()),
            _ => v.book.fault(item.at, "env", "a variable's name is needed here, or a table"),
        }
    }
    (env, parts)
}
