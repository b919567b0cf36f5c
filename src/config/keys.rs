//! `[departments]`, `[teams.*]`, `[users.*]` and `[keys.*]`: who may call, and for which models.

use super::fault::hint;
use super::value::{Shape, Value, View, join, view};
use super::{models, secret};
use crate::access::{Hash, Key, Keys, hash};
use crate::base::{DepartmentName, Glob, KeyId, TeamName, UserName};
use crate::route::Table;
use std::collections::BTreeMap;
use std::sync::Arc;

const DEPARTMENT: Shape =
    Shape { known: &["max_budget_tier", "penalty", "limits", "windows", "budgets"], later: &[] };
const TEAM: Shape = Shape {
    known: &[
        "department",
        "models",
        "aliases",
        "max_budget_tier",
        "penalty",
        "limits",
        "windows",
        "budgets",
    ],
    later: &[],
};
const KEY: Shape = Shape {
    known: &[
        "hash",
        "secret",
        "team",
        "department",
        "user",
        "tags",
        "end_users",
        "models",
        "aliases",
        "max_budget_tier",
        "penalty",
        "expires",
        "enabled",
        "limits",
        "windows",
        "budgets",
    ],
    later: &[],
};

/// A user's, and what users without it get.
const USER: Shape = Shape {
    known: &["models", "aliases", "max_budget_tier", "penalty", "limits", "windows", "budgets"],
    later: &[],
};
/// What keys get that do not say it.
const KEY_DEFAULTS: Shape = Shape {
    known: &[
        "models",
        "aliases",
        "tags",
        "expires",
        "end_users",
        "max_budget_tier",
        "penalty",
        "limits",
        "windows",
        "budgets",
    ],
    later: &[],
};

/// What a team or a user gives to its keys.
#[derive(Debug, Clone, Default)]
struct Group {
    department: Option<String>,
    models: Option<Vec<Glob>>,
    aliases: Option<BTreeMap<String, String>>,
    max_tier: Option<String>,
}

/// What `[key_defaults]` says beside rules.
#[derive(Debug, Clone, Default)]
struct Defaults {
    shared: Group,
    tags: Option<Vec<String>>,
    expires: Option<jiff::Timestamp>,
    end_users: bool,
}

/// Whom keys belong to, and what those give to them.
#[derive(Debug, Clone, Default)]
pub struct Owners {
    teams: BTreeMap<String, Group>,
    users: BTreeMap<String, Group>,
    /// For users without a table.
    user_defaults: Group,
    key_defaults: Defaults,
    /// Each with its `max_budget_tier`.
    departments: BTreeMap<String, Option<String>>,
}

impl Group {
    /// What a table says.
    fn read(v: &View<'_>, routes: &Table) -> Self {
        let aliases = v.get("aliases").map(|_| aliases(v, routes));
        let (models, max_tier) = (allowlist(v, routes), max_tier(v, routes));
        Self { department: None, models, aliases, max_tier }
    }

    /// What it does not say, taken from `other`.
    fn or(mut self, other: &Self) -> Self {
        self.models = self.models.or_else(|| other.models.clone());
        self.aliases = self.aliases.or_else(|| other.aliases.clone());
        self.max_tier = self.max_tier.or_else(|| other.max_tier.clone());
        self
    }
}

impl Owners {
    /// Whether `[teams]` defines it.
    #[must_use]
    pub fn has_team(&self, name: &str) -> bool {
        self.teams.contains_key(name)
    }
    /// A team's department.
    #[must_use]
    pub fn department(&self, team: &str) -> Option<&str> {
        self.teams.get(team)?.department.as_deref()
    }
    /// Every team that is defined.
    pub fn teams(&self) -> impl Iterator<Item = &str> {
        self.teams.keys().map(String::as_str)
    }
    /// No team is defined, so keys may name any.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.teams.is_empty()
    }
}

pub(super) fn keys(root: &View<'_>, routes: &Table) -> (Keys, Owners) {
    let owners = owners(root, routes);
    let mut all = Keys::default();
    for (name, entry) in root.named("keys") {
        let Some(v) = view(root.book, &entry.node, join("keys", name), &KEY) else { continue };
        let secret = opened_by(&v);
        let key = key(&v, name, &owners, routes);
        let Some(secret) = secret else { continue };
        if let Some(other) = all.0.insert(secret, Arc::new(key)) {
            v.complain(format!("has the same secret as keys.{}", other.name));
        }
    }
    (all, owners)
}

fn owners(root: &View<'_>, routes: &Table) -> Owners {
    let mut owners = Owners::default();
    for (name, entry) in root.named("departments") {
        let v = view(root.book, &entry.node, join("departments", name), &DEPARTMENT);
        owners.departments.insert(name.to_owned(), v.and_then(|v| max_tier(&v, routes)));
    }
    let known: Vec<&str> = owners.departments.keys().map(String::as_str).collect();
    for (name, entry) in root.named("teams") {
        if let Some(v) = view(root.book, &entry.node, join("teams", name), &TEAM) {
            let department = named(&v, "department", &known).map(str::to_owned);
            let team = Group { department, ..Group::read(&v, routes) };
            owners.teams.insert(name.to_owned(), team);
        }
    }
    if let Some(v) = root.table("user_defaults", &USER) {
        owners.user_defaults = Group::read(&v, routes);
    }
    for (name, entry) in root.named("users") {
        if let Some(v) = view(root.book, &entry.node, join("users", name), &USER) {
            let user = Group::read(&v, routes).or(&owners.user_defaults);
            owners.users.insert(name.to_owned(), user);
        }
    }
    if let Some(v) = root.table("key_defaults", &KEY_DEFAULTS) {
        owners.key_defaults = Defaults {
            shared: Group::read(&v, routes),
            tags: v.get("tags").map(|_| v.words("tags")),
            expires: expires(&v),
            end_users: v.boolean("end_users", false),
        };
    }
    owners
}

/// The key that a table describes.
pub(super) fn key(v: &View<'_>, name: &str, owners: &Owners, routes: &Table) -> Key {
    let none = Group::default();
    let Owners { teams, departments, key_defaults: defaults, .. } = owners;
    let department_names: Vec<&str> = departments.keys().map(String::as_str).collect();
    let team_names: Vec<&str> = teams.keys().map(String::as_str).collect();
    let team_name = named(v, "team", &team_names);
    let team = team_name.and_then(|t| teams.get(t)).unwrap_or(&none);
    let own = named(v, "department", &department_names);
    if let (Some(own), Some(theirs)) = (own, &team.department)
        && own != theirs
    {
        v.fault("department", format!("the department of its team is {theirs:?}"));
    }
    let department = team.department.as_deref().or(own);
    let theirs = department.and_then(|name| departments.get(name).cloned().flatten());
    let user_name = v.text("user");
    let user = user_name.map(|u| owners.users.get(u).unwrap_or(&owners.user_defaults));
    let mine = Group::read(v, routes).or(&defaults.shared);
    // The narrowest first: its names win, and every list and tier holds.
    let groups = [&mine, user.unwrap_or(&none), team];
    let tiers = groups.iter().filter_map(|g| g.max_tier.clone()).chain(theirs);
    let names = groups.iter().rev().filter_map(|g| g.aliases.clone()).flatten();
    Key {
        id: KeyId::from(name),
        name: name.into(),
        team: team_name.map(TeamName::from),
        department: department.map(DepartmentName::from),
        user: user_name.map(UserName::from),
        tags: match &defaults.tags {
            Some(tags) if v.get("tags").is_none() => tags.clone(),
            _ => v.words("tags"),
        },
        models: groups.iter().filter_map(|g| g.models.clone()).collect(),
        aliases: names.collect(),
        max_tier: tiers.min_by_key(|tier| routes.smart.rank(tier)),
        expires: if v.get("expires").is_some() { expires(v) } else { defaults.expires },
        enabled: v.boolean("enabled", true),
        end_users: v.boolean("end_users", defaults.end_users),
    }
}

/// A name that must be among those that are defined, where any are.
fn named<'a>(v: &View<'a>, key: &str, defined: &[&str]) -> Option<&'a str> {
    let name = v.text(key)?;
    if !defined.is_empty() && !defined.contains(&name) && v.book.whole() {
        v.fault(key, format!("there is no {key} {name:?}{}", hint(name, defined.iter().copied())));
    }
    Some(name)
}

/// `models`: `None` where it is absent.
fn allowlist(v: &View<'_>, routes: &Table) -> Option<Vec<Glob>> {
    let list = v.texts("models")?;
    if list.is_empty() {
        v.fault(
            "models",
            "is empty, so nothing is allowed; write enabled = false to switch a key off",
        );
    }
    for (at, name) in &list {
        models::served(v.book, *at, &v.key("models"), name, routes);
    }
    Some(list.into_iter().map(|(_, name)| Glob::new(name)).collect())
}

/// `max_budget_tier`: one of `[smart] tiers`.
fn max_tier(v: &View<'_>, routes: &Table) -> Option<String> {
    let (key, tiers) = ("max_budget_tier", &routes.smart.tiers);
    let tier = v.text(key)?;
    if !tiers.iter().any(|other| other == tier) {
        let near = hint(tier, tiers.iter().map(String::as_str));
        v.fault(key, format!("{tier:?} is none of {}{near}", tiers.join(", ")));
    }
    Some(tier.to_owned())
}

fn aliases(v: &View<'_>, routes: &Table) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (name, entry) in v.named("aliases") {
        let key = join(&v.key("aliases"), name);
        let Value::Text(to) = &entry.node.value else {
            v.book.fault(entry.node.at, &key, "a model's name is needed here");
            continue;
        };
        models::served(v.book, entry.node.at, &key, to, routes);
        out.insert(name.to_owned(), to.clone());
    }
    out
}

fn opened_by(v: &View<'_>) -> Option<Hash> {
    match (v.get("hash").is_some(), v.get("secret").is_some()) {
        (true, false) => parse_hash(v),
        (false, true) => {
            let text = v.text("secret")?;
            let secret = secret::secret(v.book, v.place("secret"), &v.key("secret"), text)?;
            Some(hash(secret.expose()))
        }
        (true, true) => {
            v.complain("has both a hash and a secret; one is enough");
            None
        }
        (false, false) => {
            v.complain("needs the hash of its secret, or the secret");
            None
        }
    }
}

fn parse_hash(v: &View<'_>) -> Option<Hash> {
    let text = v.text("hash")?;
    let digits = text
        .strip_prefix("sha256:")
        .filter(|d| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit()));
    let mut out = [0; 32];
    let sound = digits.is_some_and(|digits| {
        out.iter_mut().enumerate().all(|(i, byte)| {
            u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map(|b| *byte = b).is_ok()
        })
    });
    if !sound {
        v.fault("hash", "is no \"sha256:\" and 64 hex digits; `weir keys hash` makes one");
    }
    sound.then_some(out)
}

fn expires(v: &View<'_>) -> Option<jiff::Timestamp> {
    let text = match &v.get("expires")?.value {
        Value::Text(text) | Value::Date(text) => text,
        other => {
            v.fault("expires", format!("a time is needed here, not {}", other.kind()));
            return None;
        }
    };
    let parsed = text.parse().ok();
    if parsed.is_none() {
        v.fault("expires", format!("{text:?} is no time such as \"2027-01-01T00:00:00Z\""));
    }
    parsed
}
