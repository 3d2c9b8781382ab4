//! An environment from outside: questions about a small database, which the policy asks in SQL.
//!
//! A turn is `<sql>SELECT ...</sql>`, answered with the rows in `<rows>`, or `<answer>...</answer>`, which ends the episode.
//! Each question has a database of its own, made from the seed in its id; only reading is allowed, and a query stops after a
//! number of steps of the database's machine, not of seconds, so that an episode replays exactly on any computer.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use forage_contracts::environment::{
    Action, Call, EnvError, EnvFactory, EnvSpec, Environment, Observation, Outcome, Step, TurnForm,
    TurnKind, TurnTool,
};
use forage_contracts::scripted::{ScriptEntry, Scripted};
use forage_contracts::seed::Seed;
use forage_contracts::{
    Direction, EnvEntry, EnvTelemetry, Episode, Item, Metric, OracleHop, Passages, Pieces, Reading,
    RegistryError, Resolved, Sign, Split, Task, Vocabulary,
};
use rand::RngExt;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The registry's entry.
pub(crate) const ENTRY: EnvEntry = EnvEntry {
    for_bytes: |settings| {
        let limits = [("max_turn_tokens", 2_000), ("max_episode_tokens", 40_000)];
        settings
            .into_iter()
            .chain(limits.map(|(key, value)| (key.to_owned(), Value::from(value))))
            .collect()
    },
    questions: Some(|_, split, count, seed| Ok(questions(split, count, seed))),
    // The prompt in other words, for `forage eval --probe paraphrased-prompt`.
    resolve: |written| {
        let settings: Settings = serde_json::from_value(written)?;
        settings.check().map_err(RegistryError::Own)?;
        Ok(Resolved {
            prompt: Some(settings.template().to_owned()),
            wordings: WORDINGS.map(Value::from).to_vec(),
            files: Vec::new(),
            settings: serde_json::to_value(settings)?,
            passages: Passages::Unread {
                why: "rows of a database are read, and no passages",
                fix: "use --probe paraphrased-prompt",
            },
        })
    },
    // What a tokenizer that is trained for a warm start keeps whole.
    vocabulary: Vocabulary {
        tags: &[SQL[0], SQL[1], ROWS[0], ROWS[1], ANSWER[0], ANSWER[1]],
        pieces: Pieces::Code,
    },
    // A curve of training, and a measure of each episode in evaluations.
    metrics: |episodes, set| {
        let [failed, all] = episodes.iter().copied().map(statements).fold([0, 0], add);
        set("sql/error_frac", f64::from(failed) / f64::from(all.max(1)));
    },
    measures: |episode, set| {
        let [failed, all] = statements(episode);
        if all > 0 {
            set("sql_errors", f64::from(failed) / f64::from(all));
        }
    },
    declares: &[
        Metric::new(
            "sql/error_frac",
            ["share", "statements"],
            Direction::Lower,
            "Statements that failed",
        ),
        Metric::new(
            "sql_errors",
            ["share", "statements"],
            Direction::Lower,
            "Statements of an episode that failed",
        ),
    ],
    // A sign of bad conduct with a threshold, and how the common signs read a turn.
    telemetry: EnvTelemetry {
        items: &[Item::new(
            "failed_statements",
            "share of an episode's statements that failed",
            failed_statements,
        )
        .watched(
            0.5,
            "The policy guesses tables and columns. Explain them in the prompt (`explain = true`), or warm it up.",
        )],
        found: |call| (call.tool == QUERY).then(|| call.payload["rows"].as_u64() > Some(0)),
        actions: &[SQL],
        observations: &[ROWS[0]],
        ..EnvTelemetry::COMMON
    },
    scripts: &[ScriptEntry {
        name: ScriptEntry::ORACLE,
        play: |cast| Arc::new(Scripted::solution(cast, oracle)),
    }],
    ..EnvEntry::new(
        "lab/sql-v0",
        "questions about a small database, asked in SQL",
        Outcome::Answer,
        "<sql>SELECT name FROM customers ORDER BY name</sql>",
        |settings, _resources| {
            let settings: Settings = serde_json::from_value(settings)?;
            settings.check().map_err(RegistryError::Own)?;
            Ok(Arc::new(Factory {
                spec: settings.spec(),
                settings,
            }))
        },
    )
};

/// Settings of `lab/sql-v0`; missing keys take their defaults, unknown keys are errors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Settings {
    /// Whether the prompt explains the tables and the tags; without it the question stands alone.
    explain: bool,
    /// Another prompt, with `{question}` in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    /// Most turns of an episode.
    max_turns: usize,
    /// Rows of a result that are shown.
    max_rows: usize,
    /// Thousands of machine steps after which a query is stopped.
    max_kilosteps: u32,
    /// Most tokens of a turn.
    max_turn_tokens: usize,
    /// Most tokens of an episode.
    max_episode_tokens: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            explain: true,
            prompt: None,
            max_turns: 4,
            max_rows: 8,
            max_kilosteps: 1_000,
            max_turn_tokens: 96,
            max_episode_tokens: 1024,
        }
    }
}

impl Settings {
    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let numbers = [
            ("max_turns", self.max_turns),
            ("max_rows", self.max_rows),
            ("max_kilosteps", self.max_kilosteps as usize),
            ("max_turn_tokens", self.max_turn_tokens),
            ("max_episode_tokens", self.max_episode_tokens),
        ];
        if !self.template().contains(QUESTION) {
            return Err("`prompt` lacks {question}; write where the question stands".into());
        }
        match numbers.iter().find(|(_, number)| *number == 0) {
            Some((key, _)) => Err(format!("`{key}` is 0; write at least 1").into()),
            None => Ok(()),
        }
    }

    fn template(&self) -> &str {
        let built_in = if self.explain { PROMPT } else { PLAIN };
        self.prompt.as_deref().unwrap_or(built_in)
    }

    fn spec(&self) -> EnvSpec {
        EnvSpec {
            id: ENTRY.id.to_owned(),
            outcome: ENTRY.outcome,
            max_turns: self.max_turns,
            max_turn_tokens: self.max_turn_tokens,
            max_episode_tokens: self.max_episode_tokens,
            stop: vec![SQL[1].to_owned(), ANSWER[1].to_owned()],
            append_eos_after_stop: false,
            tools: Vec::new(),
        }
    }
}

struct Factory {
    spec: EnvSpec,
    settings: Settings,
}

impl EnvFactory for Factory {
    fn make(&self) -> Box<dyn Environment> {
        Box::new(Sql {
            spec: self.spec.clone(),
            settings: self.settings.clone(),
            episode: None,
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    // For clients that call tools, over MCP and OpenEnv.
    fn tools(&self) -> Vec<TurnTool> {
        let tool = |name, about, parameter, [open, close]: [&'static str; 2]| TurnTool {
            name,
            about,
            parameter,
            form: TurnForm::Tags {
                open,
                before_close: "",
                close,
            },
        };
        vec![
            tool(QUERY, "Runs a SELECT; returns rows.", "statement", SQL),
            tool("answer", "Ends the episode.", "answer", ANSWER),
        ]
    }
}

/// The environment.
struct Sql {
    spec: EnvSpec,
    settings: Settings,
    episode: Option<(Connection, Vec<String>)>,
}

#[async_trait]
impl Environment for Sql {
    async fn reset(&mut self, task: &Task, _seed: Seed) -> Result<Observation, EnvError> {
        self.episode = Some((database_of(task)?, task.golds.clone()));
        let template = self.settings.template();
        let prompt = template.replace(QUESTION, task.question.trim());
        Ok(Observation::new(prompt))
    }

    async fn step(&mut self, action: &Action) -> Result<Step, EnvError> {
        let (database, golds) = self.episode.as_ref().ok_or(EnvError::NotReset)?;
        let Settings {
            max_rows,
            max_kilosteps,
            ..
        } = self.settings;
        Ok(match parse(&action.text) {
            Turn::Answer(answer) => Step::end(TurnKind::answer(answer)),
            Turn::Query(statement) => {
                let found = run(database, statement, max_rows, max_kilosteps);
                let (shown, payload) = match &found {
                    Ok(table) => (table.to_text(), json!({"rows": table.rows.len()})),
                    Err(why) => (format!("error: {why}"), json!({"failed": true})),
                };
                let call = Call {
                    gold_read: golds.iter().any(|gold| shown.contains(gold.as_str())),
                    payload,
                    ..Call::new(QUERY).with("statement", statement)
                };
                let [open, close] = ROWS;
                let observation = Observation::new(format!("\n{open}\n{shown}\n{close}\n"));
                Step::reply(observation, TurnKind::call(call))
            }
            Turn::Neither => {
                let fault = "neither <sql> nor <answer>";
                let observation = Observation::new(format!("\n{fault}: write one of them.\n"));
                Step::reply(observation, TurnKind::invalid(fault))
            }
        })
    }

    fn spec(&self) -> &EnvSpec {
        &self.spec
    }
}

/// The tool, in records and for clients that call it.
const QUERY: &str = "sql";
const SQL: [&str; 2] = ["<sql>", "</sql>"];
const ROWS: [&str; 2] = ["<rows>", "</rows>"];
const ANSWER: [&str; 2] = ["<answer>", "</answer>"];

/// Stands for the question in a prompt.
const QUESTION: &str = "{question}";
const PLAIN: &str = "Question: {question}\n";
const PROMPT: &str = "Answer the question from a database. Its tables:
customers(id, name, city), products(id, name, category, price), orders(id, customer_id, product_id, year, quantity)
Write <sql>SELECT ...</sql> to see rows, or <answer>...</answer> to answer.
Question: {question}
";
const WORDINGS: [&str; 2] = [
    "You have a database: customers(id, name, city), products(id, name, category, price), orders(id, customer_id, \
     product_id, year, quantity). Look rows up with <sql>SELECT ...</sql>, then reply with <answer>...</answer>.\n\
     Question: {question}\n",
    "Question: {question}\nQuery customers(id, name, city), products(id, name, category, price) and orders(id, \
     customer_id, product_id, year, quantity) between <sql> and </sql>; give the answer between <answer> and </answer>.\n",
];

/// Statements of an episode: those that failed, and all.
fn statements(episode: &Episode) -> [u32; 2] {
    let calls = episode.calls().filter(|call| call.tool == QUERY);
    calls.fold([0, 0], |count, call| {
        add(count, [u32::from(call.payload["failed"] == true), 1])
    })
}

/// The share of failed statements, with the first of them.
fn failed_statements(reading: &Reading<'_>) -> Option<Sign> {
    let share = reading.measure("sql_errors")?.value;
    let mut calls = reading.episode.calls();
    let failed = calls.find(|call| call.payload["failed"] == true);
    let statement = failed.and_then(|call| call.arguments["statement"].as_str());
    Some(Sign::new(share, statement))
}

fn add([a, b]: [u32; 2], [c, d]: [u32; 2]) -> [u32; 2] {
    [a + c, b + d]
}

enum Turn<'a> {
    Query(&'a str),
    Answer(&'a str),
    Neither,
}

/// What stands in the last pair of tags, which the completion ends with.
fn parse(text: &str) -> Turn<'_> {
    let between = |[opening, closing]: [&str; 2]| {
        let inside = text.trim_end().strip_suffix(closing)?;
        let start = inside.rfind(opening)? + opening.len();
        Some(inside[start..].trim())
    };
    match (between(SQL), between(ANSWER)) {
        (Some(sql), _) => Turn::Query(sql),
        (None, Some(answer)) => Turn::Answer(answer),
        (None, None) => Turn::Neither,
    }
}

/// The last statement of an episode, for rewards.
pub(crate) fn last_statement(episode: &Episode) -> Option<&str> {
    let calls = episode.calls().filter(|call| call.tool == QUERY);
    calls.last()?.arguments["statement"].as_str()
}

/// Rows of a result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Table {
    columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Whether there are more.
    cut: bool,
}

impl Table {
    fn to_text(&self) -> String {
        let mut lines = vec![self.columns.join(" | ")];
        lines.extend(self.rows.iter().map(|row| row.join(" | ")));
        if self.rows.is_empty() {
            lines.push("(no rows)".to_owned());
        } else if self.cut {
            lines.push("(more rows)".to_owned());
        }
        lines.join("\n")
    }
}

/// Runs one query of a policy's; what is wrong with it comes back in the database's own words.
pub(crate) fn run(
    database: &Connection,
    sql: &str,
    max_rows: usize,
    max_kilosteps: u32,
) -> Result<Table, String> {
    let mut left = max_kilosteps;
    let step = move || {
        left = left.saturating_sub(1);
        left == 0
    };
    let watched = database.progress_handler(1000, Some(step));
    let words = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => {
            "the query takes too long; ask for less".to_owned()
        }
        Some(ErrorCode::TooBig) => "the result is too large".to_owned(),
        _ => error.to_string(),
    };
    watched.map_err(words)?;
    let mut statement = database.prepare(sql).map_err(words)?;
    let columns = statement.column_names().into_iter().map(str::to_owned);
    let mut table = Table {
        columns: columns.collect(),
        rows: Vec::new(),
        cut: false,
    };
    let mut rows = statement.query([]).map_err(words)?;
    while let Some(row) = rows.next().map_err(words)? {
        if table.rows.len() == max_rows {
            table.cut = true;
            break;
        }
        let cells = (0..table.columns.len()).map(|at| row.get_ref(at).map(cell));
        let cells: Result<_, _> = cells.collect();
        table.rows.push(cells.map_err(words)?);
    }
    Ok(table)
}

fn cell(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => number.to_string(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Blob(bytes) => format!("({} bytes)", bytes.len()),
    }
}

/// The database a question is about.
pub(crate) fn database_of(task: &Task) -> Result<Connection, EnvError> {
    let missing =
        "names no database: its id must end in `@` and a seed, as `forage-examples` makes them";
    let seed = task
        .id
        .rsplit_once('@')
        .and_then(|(_, seed)| seed.parse().ok());
    let seed = seed.ok_or_else(|| EnvError::Task {
        task: task.id.clone(),
        question: task.question.clone(),
        missing: missing.to_owned(),
    })?;
    let opened = database(Seed(seed)).and_then(|database| guard(&database).map(|()| database));
    opened.map_err(EnvError::own)
}

/// Functions that would make an episode depend on the clock or on chance.
const UNREPEATABLE: &str = "random randomblob date time datetime julianday strftime unixepoch current_date current_timestamp";

/// From here on the database is read, and nothing else.
fn guard(database: &Connection) -> rusqlite::Result<()> {
    database.set_limit(Limit::SQLITE_LIMIT_LENGTH, 100_000)?;
    database.set_limit(Limit::SQLITE_LIMIT_SQL_LENGTH, 10_000)?;
    database.authorizer(Some(|context: AuthContext<'_>| match context.action {
        AuthAction::Function { function_name }
            if UNREPEATABLE
                .split(' ')
                .any(|name| name.eq_ignore_ascii_case(function_name)) =>
        {
            Authorization::Deny
        }
        AuthAction::Select
        | AuthAction::Read { .. }
        | AuthAction::Recursive
        | AuthAction::Function { .. } => Authorization::Allow,
        _ => Authorization::Deny,
    }))
}

const CITIES: [&str; 8] = [
    "Aldern", "Brisk", "Corvale", "Dunmere", "Eastwick", "Farrow", "Glim", "Hollen",
];
const CATEGORIES: [&str; 5] = ["tools", "lamps", "books", "chairs", "kettles"];
const SYLLABLES: [&str; 12] = [
    "ka", "lo", "mi", "ren", "sa", "tor", "vel", "wyn", "bra", "den", "fi", "gus",
];
const YEARS: std::ops::Range<u32> = 2018..2024;

/// A shop made from a seed: customers, products and orders with names that nobody has read before.
fn database(seed: Seed) -> rusqlite::Result<Connection> {
    let mut rng = seed.rng();
    let mut database = Connection::open_in_memory()?;
    let filling = database.transaction()?;
    filling.execute_batch(
        "CREATE TABLE customers(id INTEGER PRIMARY KEY, name TEXT, city TEXT);
         CREATE TABLE products(id INTEGER PRIMARY KEY, name TEXT, category TEXT, price INTEGER);
         CREATE TABLE orders(id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER, year INTEGER, quantity INTEGER);",
    )?;
    let mut names = BTreeSet::new();
    for id in 1..=CUSTOMERS {
        let name = [2, 3].map(|syllables| fresh(&mut names, &mut rng, syllables));
        let row = (id, name.join(" "), *pick(&CITIES, &mut rng));
        filling.execute("INSERT INTO customers VALUES (?, ?, ?)", row)?;
    }
    for id in 1..=PRODUCTS {
        let (name, category) = (fresh(&mut names, &mut rng, 3), *pick(&CATEGORIES, &mut rng));
        let row = (id, name, category, rng.random_range(3..400_u32));
        filling.execute("INSERT INTO products VALUES (?, ?, ?, ?)", row)?;
    }
    for id in 1..=300_u32 {
        let sides = [CUSTOMERS, PRODUCTS].map(|most| rng.random_range(1..=most));
        let [year, quantity] = [YEARS, 1..10].map(|range| rng.random_range(range));
        let row = (id, sides[0], sides[1], year, quantity);
        filling.execute("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", row)?;
    }
    filling.commit()?;
    Ok(database)
}

const CUSTOMERS: u32 = 40;
const PRODUCTS: u32 = 25;

/// A name that this shop does not have yet.
fn fresh(names: &mut BTreeSet<String>, rng: &mut impl rand::Rng, syllables: usize) -> String {
    loop {
        let name: String = (0..syllables).map(|_| *pick(&SYLLABLES, rng)).collect();
        let name = name[..1].to_uppercase() + &name[1..];
        if names.insert(name.clone()) {
            return name;
        }
    }
}

fn pick<'a, T>(items: &'a [T], rng: &mut impl rand::Rng) -> &'a T {
    &items[rng.random_range(0..items.len())]
}

/// Questions of a split; no two splits share a database.
fn questions(split: Split, count: usize, seed: Seed) -> Vec<Task> {
    let name = match split {
        Split::Train => "train",
        Split::Dev => "dev",
        Split::Test => "test",
    };
    let made = |index| {
        let made = question(split, name, index, seed.child(name, &[index]));
        made.expect("a database in memory takes what is put into it")
    };
    (0..count as u64).map(made).collect()
}

fn question(split: Split, name: &str, index: u64, seed: Seed) -> rusqlite::Result<Task> {
    let database = database(seed)?;
    let mut rng = seed.child("question", &[]).rng();
    let named = |table: &str, id: u32| {
        let sql = format!("SELECT name FROM {table} WHERE id = ?");
        database.query_row(&sql, [id], |row| row.get::<_, String>(0))
    };
    let year = rng.random_range(YEARS);
    let (question, sql) = match rng.random_range(0..4_u32) {
        0 => {
            let customer = named("customers", rng.random_range(1..=CUSTOMERS))?;
            let sql = format!("SELECT city FROM customers WHERE name = '{customer}'");
            (format!("In which city does {customer} live?"), sql)
        }
        1 => {
            let product = named("products", rng.random_range(1..=PRODUCTS))?;
            let sql = format!("SELECT price FROM products WHERE name = '{product}'");
            (format!("What is the price of {product}?"), sql)
        }
        2 => {
            let customer = named("customers", rng.random_range(1..=CUSTOMERS))?;
            let sql = format!(
                "SELECT COUNT(*) FROM orders JOIN customers ON customers.id = customer_id WHERE name = '{customer}' AND \
                 year = {year}"
            );
            let asked = format!("How many orders did {customer} place in {year}?");
            (asked, sql)
        }
        _ => {
            let product = named("products", rng.random_range(1..=PRODUCTS))?;
            let sql = format!(
                "SELECT COALESCE(SUM(quantity), 0) FROM orders JOIN products ON products.id = product_id WHERE name = \
                 '{product}' AND year = {year}"
            );
            let asked = format!("How many pieces of {product} were sold in {year}?");
            (asked, sql)
        }
    };
    let answer = database.query_row(&sql, [], |row| row.get_ref(0).map(cell))?;
    Ok(Task {
        golds: vec![answer.clone()],
        hops: 1,
        oracle: vec![OracleHop {
            query: sql,
            finding: answer,
        }],
        data_source: "sql".to_owned(),
        split,
        ..Task::new(format!("{name}-{index}@{}", seed.0), question)
    })
}

/// Asks the known query, then answers with the first cell it reads.
fn oracle(task: &Task, shown: &[String]) -> String {
    let query = task.oracle.first().map_or("", |hop| hop.query.as_str());
    let rows = shown.last().and_then(|shown| shown.split_once(ROWS[0]));
    match rows {
        None => format!("<sql>{query}</sql>"),
        Some((_, rows)) => {
            let cell = rows.lines().nth(2).unwrap_or_default();
            format!("<answer>{cell}</answer>")
        }
    }
}
