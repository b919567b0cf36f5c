//! The shapes that hold to the specification, borrowed from the bytes: what reads into these and
//! fits the stream so far leaves as it came.

use super::members::Text;
use super::usage::Told;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;
use std::marker::PhantomData;

/// `chat.completion.chunk`.
#[derive(serde::Deserialize)]
pub(super) struct Chunk<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'a str,
    pub(super) created: u64,
    pub(super) model: &'a str,
    #[serde(borrow)]
    pub(super) choices: Few<Choice<'a>>,
    /// Null is a value here: it may have to be cut.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) x_groq: Option<&'a RawValue>,
    pub(super) error: Option<IgnoredAny>,
}

/// A chunk's choice; `finish_reason` must stand there, be it null.
#[derive(serde::Deserialize)]
pub(super) struct Choice<'a> {
    pub(super) index: u32,
    #[serde(borrow)]
    pub(super) delta: Object<Said<'a>>,
    #[serde(deserialize_with = "stated")]
    pub(super) finish_reason: Option<&'a str>,
}

/// `chat.completion`.
#[derive(serde::Deserialize)]
pub(super) struct Completion<'a> {
    pub(super) id: &'a str,
    pub(super) object: &'a str,
    /// It must stand there as a number; that is all.
    #[allow(dead_code)] // read for its type
    pub(super) created: u64,
    pub(super) model: &'a str,
    #[serde(borrow)]
    pub(super) choices: Few<WholeChoice<'a>>,
    pub(super) usage: Object<Told>,
    pub(super) error: Option<IgnoredAny>,
}

/// A completion's choice.
#[derive(serde::Deserialize)]
pub(super) struct WholeChoice<'a> {
    pub(super) index: u32,
    #[serde(borrow)]
    pub(super) message: Object<Said<'a>>,
    pub(super) finish_reason: &'a str,
}

/// A delta or a message.
#[derive(serde::Deserialize)]
pub(super) struct Said<'a> {
    /// Null is a value here: no later delta may have the key.
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) role: Option<Option<&'a str>>,
    #[serde(borrow, default, deserialize_with = "present")]
    pub(super) content: Option<Option<Text<'a>>>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Few<Call<'a>>>,
    #[serde(borrow)]
    pub(super) function_call: Option<Function<'a>>,
}

/// A tool call or a fragment of one.
#[derive(serde::Deserialize)]
pub(super) struct Call<'a> {
    pub(super) index: Option<u32>,
    pub(super) id: Option<&'a str>,
    #[serde(rename = "type")]
    pub(super) kind: Option<&'a str>,
    #[serde(borrow)]
    pub(super) function: Option<Function<'a>>,
    pub(super) custom: Option<IgnoredAny>,
}

/// What is called, with which arguments.
#[derive(serde::Deserialize)]
pub(super) struct Function<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) arguments: Option<Text<'a>>,
}

fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn stated<'de, D: Deserializer<'de>>(from: D) -> Result<Option<&'de str>, D::Error> {
    Option::deserialize(from)
}

/// An array that rarely has more than one element: one costs no allocation.
pub(super) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    pub(super) fn one(first: T) -> Self {
        Self { first: Some(first), rest: Vec::new() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.first.iter().chain(&self.rest)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Few<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
                let first = seq.next_element()?;
                let mut rest = Vec::new();
                while let Some(element) = seq.next_element()? {
                    rest.push(element);
                }
                Ok(Few { first, rest })
            }
        }
        from.deserialize_seq(Read(PhantomData))
    }
}

/// An object and nothing else: serde would take an array for a struct, too.
#[derive(Debug)]
pub(super) struct Object<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Read<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        from.deserialize_map(Read(PhantomData))
    }
}
