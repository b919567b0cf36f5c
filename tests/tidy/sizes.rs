//! How long files, functions, parameter lists and lines may be.
//!
//! In files of tests a line that holds a string may be longer: a provider's bytes are read more
//! easily whole.

use super::source::{File, blank, line_of, without_tests, words};

const LINES_MAX: usize = 400;
const FUNCTION_MAX: usize = 70;
const PARAMETERS_MAX: usize = 5;
const COLUMNS_MAX: usize = 100;

/// Files that must be longer; each says why in its first lines.
const LONG: [&str; 0] = [];

/// All of it, for every Rust file.
pub fn check(files: &[File]) -> Vec<String> {
    assert_eq!(LONG.len(), 0, "a list of exceptions that grows is no rule");
    files.iter().filter(|f| f.is_rust()).flat_map(one).collect()
}

fn one(file: &File) -> Vec<String> {
    let mut faults = vec![];
    let path = &file.path;
    // A file of tests alone counts whole; in others their tests do not count.
    let code = blank(&file.text);
    let body = if file.is_test() { code.clone() } else { without_tests(&code) };
    let lines = body.lines().count();
    if lines > LINES_MAX && !LONG.contains(&path.as_str()) {
        faults.push(format!("{path}: {lines} lines"));
    }
    for (i, line) in file.text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !(file.is_test() && line.contains('"')) {
            faults.push(format!("{path}:{}: {columns} columns", i + 1));
        }
    }
    let exempt = trait_impls(&code);
    for (at, function) in functions(&code) {
        let place = format!("{path}:{}: {}", line_of(&code, at), function.name);
        if function.lines > FUNCTION_MAX {
            faults.push(format!("{place}: {} lines", function.lines));
        }
        let free = exempt.iter().any(|(from, to)| (*from..*to).contains(&at));
        if function.parameters > PARAMETERS_MAX && !free {
            faults.push(format!("{place}: {} parameters", function.parameters));
        }
    }
    faults
}

struct Function<'a> {
    name: &'a str,
    /// From `fn` to the closing brace.
    lines: usize,
    /// `self` not counted.
    parameters: usize,
}

fn functions(code: &str) -> Vec<(usize, Function<'_>)> {
    let found = words(code).filter(|(_, w)| *w == "fn");
    found.filter_map(|(at, _)| Some((at, function(&code[at..])?))).collect()
}

fn function(code: &str) -> Option<Function<'_>> {
    let (name_at, name) = words(&code[2..]).next()?;
    // `fn(` is a type.
    if code[2..][..name_at].contains('(') {
        return None;
    }
    let open = generics_end(code, 2 + name_at + name.len())?;
    let close = open + matching(&code[open..], '(', ')')?;
    let parameters = count(&code[open + 1..close]);
    let after = &code[close..];
    let brace = after.find('{')?;
    // A semicolon first (outside of an array type) ends a declaration without a body.
    let lines = match after.find(';') {
        Some(end) if end < brace && !after[..end].contains('[') => 1,
        _ => {
            let end = close + brace + matching(&after[brace..], '{', '}')?;
            code[..end].matches('\n').count() + 1
        }
    };
    Some(Function { name, lines, parameters })
}

/// Where the parameter list opens: after the name, or after its `<…>`.
fn generics_end(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0;
    let mut before = ' ';
    for (i, c) in code[from..].char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            '(' if depth == 0 => return Some(from + i),
            _ => {}
        }
        before = c;
    }
    None
}

fn matching(code: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    code.char_indices().find_map(|(i, c)| {
        depth += i32::from(c == open) - i32::from(c == close);
        (depth == 0).then_some(i)
    })
}

/// Members of a parameter list; `self` is none.
fn count(list: &str) -> usize {
    let (mut depth, mut before) = (0, ' ');
    let members = list.split(|c| {
        match c {
            '(' | '[' | '<' | '{' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '>' | '}' => depth -= 1,
            _ => {}
        }
        before = c;
        c == ',' && depth == 0
    });
    let receiver = |m: &str| {
        let name = m.split(':').next().unwrap_or_default();
        words(name).any(|(_, w)| w == "self")
    };
    members.filter(|m| !m.trim().is_empty() && !receiver(m)).count()
}

/// Where blocks of `impl Trait for Type` lie.
fn trait_impls(code: &str) -> Vec<(usize, usize)> {
    let impls = words(code).filter(|(_, w)| *w == "impl");
    let block = |(at, _): (usize, &str)| {
        let open = at + code[at..].find('{')?;
        let head = &code[at..open];
        // `for<'a>` is a bound, not a target; `impl X` inside a signature ends before a brace.
        let targets = words(head).any(|(i, w)| w == "for" && !head[i + 3..].starts_with('<'));
        let end = open + matching(&code[open..], '{', '}')?;
        (targets && !head.contains(';')).then_some((open, end))
    };
    impls.filter_map(block).collect()
}

#[test]
fn what_is_too_long_is_found() {
    use super::finds;
    let check = |text: &str, n: usize| finds(check, "src/x.rs", text, n);
    check(&"x;\n".repeat(400), 0);
    check(&"x;\n".repeat(401), 1);
    check(&format!("x;\n#[cfg(test)]\nmod tests {{\n{}}}\n", "y;\n".repeat(500)), 0);
    check(&format!("// {}", "é".repeat(97)), 0);
    check(&format!("// {}", "é".repeat(98)), 1);
    let wire = format!("f(\"{}\");", "x".repeat(100));
    check(&wire, 1);
    finds(super::sizes::check, "tests/x.rs", &wire, 0);
    check(&format!("fn f() {{\n{}}}\n", "y;\n".repeat(68)), 0);
    check(&format!("fn f() {{\n{}}}\n", "y;\n".repeat(69)), 1);
    check(&format!("#[cfg(test)]\nmod t {{ fn f() {{\n{}}} }}\n", "y;\n".repeat(69)), 1);
}

#[test]
fn parameters_are_counted_as_people_do() {
    use super::finds;
    let check = |text: &str, n: usize| finds(check, "src/x.rs", text, n);
    check("fn f(a: A, b: B, c: C, d: D, e: E) {}", 0);
    check("fn f(a: A, b: B, c: C, d: D, e: E, f: F) {}", 1);
    check("impl X { fn f(&mut self, a: A, b: B, c: C, d: D, e: E) {} }", 0);
    check("fn f<A: Fn(u8, u8) -> (u8, u8), B>(a: HashMap<A, B>, b: (B, B), c: [u8; 2],) {}", 0);
    check("trait T { fn f(a: A, b: B, c: C, d: D, e: E, f: F) -> [u8; 2]; fn g() {} }", 1);
    check("impl T for X { fn f(a: A, b: B, c: C, d: D, e: E, f: F) {} }", 0);
    check("type F = fn(A, B, C, D, E, F); fn g() {}", 0);
}
