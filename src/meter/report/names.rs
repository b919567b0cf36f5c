//! What rows are grouped by: each value stands once, and a row has its number.

use super::figures::Sums;
use rusqlite::types::ValueRef;
use std::collections::HashMap;
use std::sync::Arc;

/// A value of a grouping column, in the order of reports: absent ones first, numbers by value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Value {
    Null,
    Number(i64),
    Text(Arc<str>),
}

/// Values by number; 0 is the absent one.
#[derive(Debug)]
pub(super) struct Names {
    all: Vec<Value>,
    texts: HashMap<Arc<str>, u32>,
    numbers: HashMap<i64, u32>,
}

impl Default for Names {
    fn default() -> Self {
        Self { all: vec![Value::Null], texts: HashMap::new(), numbers: HashMap::new() }
    }
}

/// The number of what is absent.
pub(super) const ABSENT: u32 = 0;

impl Names {
    pub fn text(&mut self, text: &str) -> u32 {
        if let Some(n) = self.texts.get(text) {
            return *n;
        }
        let text: Arc<str> = text.into();
        let n = self.push(Value::Text(text.clone()));
        self.texts.insert(text, n);
        n
    }

    pub fn number(&mut self, number: i64) -> u32 {
        if let Some(n) = self.numbers.get(&number) {
            return *n;
        }
        let n = self.push(Value::Number(number));
        self.numbers.insert(number, n);
        n
    }

    /// A value of the database.
    pub fn of(&mut self, value: ValueRef<'_>) -> u32 {
        match value {
            ValueRef::Integer(n) => self.number(n),
            ValueRef::Text(text) => self.text(&String::from_utf8_lossy(text)),
            _ => ABSENT,
        }
    }

    /// More than memory holds share the last number.
    fn push(&mut self, value: Value) -> u32 {
        let n = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(value);
        n
    }

    pub fn all(&self) -> &[Value] {
        &self.all
    }

    /// The place of each value in the order of all.
    fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        order.sort_unstable_by(|a, b| self.all[*a].cmp(&self.all[*b]));
        let mut ranks = vec![0; order.len()];
        for (rank, at) in (0u32..).zip(order) {
            ranks[at] = rank;
        }
        ranks
    }
}

/// A group's values by number, one for each grouping column.
pub(super) type Key = Box<[u32]>;

/// Groups while they are added up.
#[derive(Debug, Default)]
pub(super) struct Groups {
    pub names: Names,
    places: HashMap<Key, usize>,
    sums: Vec<Sums>,
}

impl Groups {
    /// The sums of a group.
    pub fn at(&mut self, key: &[u32]) -> &mut Sums {
        let place = self.places.get(key).copied().unwrap_or_else(|| {
            self.places.insert(key.into(), self.sums.len());
            self.sums.push(Sums::default());
            self.sums.len() - 1
        });
        &mut self.sums[place]
    }

    /// In order.
    pub fn sorted(mut self) -> (Names, Vec<(Key, Sums)>) {
        let ranks = self.names.ranks();
        let rank = |n: &u32| ranks.get(*n as usize).copied().unwrap_or(u32::MAX);
        let mut places: Vec<(Key, usize)> = self.places.into_iter().collect();
        places.sort_unstable_by(|(a, _), (b, _)| a.iter().map(rank).cmp(b.iter().map(rank)));
        let take = |(key, place): (Key, usize)| (key, std::mem::take(&mut self.sums[place]));
        let all = places.into_iter().map(take).collect();
        (self.names, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_in_the_order_of_their_values() {
        let mut groups = Groups::default();
        let values = [Value::Text("b".into()), Value::Null, Value::Number(10), Value::Number(9)];
        for value in &values {
            let n = match value {
                Value::Null => ABSENT,
                Value::Number(n) => groups.names.number(*n),
                Value::Text(text) => groups.names.text(text),
            };
            groups.at(&[n, ABSENT]).requests += 1;
            groups.at(&[n, ABSENT]).requests += 1;
        }
        let (names, all) = groups.sorted();
        let got: Vec<_> = all.iter().map(|(key, _)| &names.all()[key[0] as usize]).collect();
        assert_eq!(got, [&values[1], &values[3], &values[2], &values[0]]);
        assert!(all.iter().all(|(_, sums)| sums.requests == 2));
    }
}
