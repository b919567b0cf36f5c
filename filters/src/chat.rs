//! The canonical chat: OpenAI's shape, unknown fields kept in `rest`. What every translating wire
//! and dialect goes through.
