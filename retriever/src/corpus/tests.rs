use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn write(folder: &tempfile::TempDir, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path
}

fn read(path: &Path, format: CorpusFormat) -> Result<Vec<Passage>, ReadError> {
    CorpusReader::open(path, format)?.collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

const BEIR: &str = "\u{feff}{\"_id\":\"a\",\"title\":\"T\",\"text\":\"x\",\"metadata\":{}}\n\n{\"_id\":7,\"text\":\"y\"}\r\n";

#[test]
fn reads_beir_from_file_folder_and_gzip() {
    let folder = tempfile::tempdir().unwrap();
    let expected = vec![Passage::new("a", "T", "x"), Passage::new("7", "", "y")];
    let gz = write(&folder, "corpus.jsonl.gz", &gzip(BEIR.as_bytes()));
    assert_eq!(read(&gz, CorpusFormat::BEIR).unwrap(), expected);
    assert_eq!(read(folder.path(), CorpusFormat::BEIR).unwrap(), expected);
    let plain = write(&folder, "corpus.jsonl", BEIR.as_bytes());
    assert_eq!(read(&plain, CorpusFormat::BEIR).unwrap(), expected);
    assert_eq!(
        CorpusFormat::detect(folder.path()).unwrap(),
        CorpusFormat::BEIR
    );
}

#[test]
fn reads_search_r1() {
    let folder = tempfile::tempdir().unwrap();
    let rows = "{\"id\":\"0\",\"contents\":\"\\\"Evan Morris\\\"\\nfirst\\nsecond\"}\n{\"id\":1,\"contents\":\"no title\"}\n";
    let path = write(&folder, "wiki.jsonl", rows.as_bytes());
    let expected = vec![
        Passage::new("0", "Evan Morris", "first\nsecond"),
        Passage::new("1", "", "no title"),
    ];
    assert_eq!(read(&path, CorpusFormat::SEARCH_R1).unwrap(), expected);
    assert_eq!(
        CorpusFormat::detect(&path).unwrap(),
        CorpusFormat::SEARCH_R1
    );
}

#[test]
fn numbers_the_passages_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let row = "{\"id\":\"benham\",\"title\":\"Benham\",\"content\":\"# Benham\\n\\nOne.\\n\\n## History\\n\\nTwo.\\n\",\"sections\":1}";
    let path = write(&folder, "pages.jsonl", row.as_bytes());
    let passage = |id: &str, text: &str| {
        Passage::new(id, "Benham", text)
            .with_field("page", "benham")
            .with_field("sections", "1")
    };
    let expected = vec![
        passage("benham#0", "One."),
        passage("benham#1", "History\nTwo.").with_field("section", "History"),
    ];
    assert_eq!(read(&path, CorpusFormat::PAGES).unwrap(), expected);
}

#[test]
fn errors_name_file_line_fault_and_fix() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&str, &str); 5] = [
        (
            "{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\"b\"}\n",
            "line 2: field `text` is missing; BEIR rows are",
        ),
        (
            "{\"_id\":null,\"text\":\"x\"}\n",
            "line 1: field `_id` is null, not a non-empty string",
        ),
        (
            "{\"_id\":\"a\",\"text\":[1]}\n",
            "line 1: field `text` is an array, not a string",
        ),
        ("\n\n{\"_id\":\n", "line 3: not a JSON object (EOF"),
        ("", "holds no passages"),
    ];
    for (content, expected) in cases {
        let path = write(&folder, "corpus.jsonl", content.as_bytes());
        let message = read(&path, CorpusFormat::BEIR).unwrap_err().to_string();
        assert!(
            message.contains(expected) && message.contains("corpus.jsonl"),
            "{message}"
        );
    }
    let message = read(&folder.path().join("none.jsonl"), CorpusFormat::BEIR)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("no file at") && message.contains("none.jsonl"),
        "{message}"
    );
}

#[test]
fn a_cut_gzip_is_an_error_not_a_short_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let rows = (0..5000)
        .map(|id| format!("{{\"_id\":\"{id}\",\"text\":\"word {}\"}}\n", id * 7919))
        .collect::<Vec<_>>()
        .concat();
    let whole = gzip(rows.as_bytes());
    let path = write(&folder, "cut.jsonl.gz", &whole[..whole.len() / 2]);
    let error = read(&path, CorpusFormat::BEIR).unwrap_err();
    assert!(
        matches!(error, ReadError::Truncated { line, .. } if line > 0),
        "{error}"
    );
    let path = write(&folder, "trailer.jsonl.gz", &whole[..whole.len() - 4]);
    assert!(matches!(
        read(&path, CorpusFormat::BEIR),
        Err(ReadError::Truncated { .. })
    ));
}

#[test]
fn search_r1_rows_with_a_title_or_a_text_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [
        r#"{"id":"0","title":"T","contents":"\"T\"\nx"}"#,
        r#"{"id":"1","title":"T","contents":"first line\nsecond"}"#,
        r#"{"id":"2","title":"T","contents":"one line"}"#,
        r#"{"id":"3","title":"T","text":"x\ny"}"#,
        r#"{"id":"4","title":"T","text":"x","contents":"T\nx","lang":"en"}"#,
        r#"{"id":"5","contents":"\"\"Heroes\" (album)\"\nx"}"#,
        r#"{"id":"6","title":"\"Heroes\"","contents":"\"\"Heroes\"\"\nx"}"#,
    ];
    let expected = vec![
        Passage::new("0", "T", "x"),
        Passage::new("1", "T", "first line\nsecond"),
        Passage::new("2", "T", "one line"),
        Passage::new("3", "T", "x\ny"),
        Passage::new("4", "T", "x").with_field("lang", "en"),
        Passage::new("5", "\"Heroes\" (album)", "x"),
        Passage::new("6", "\"Heroes\"", "x"),
    ];
    let path = write(&folder, "wiki.jsonl", rows.join("\n").as_bytes());
    assert_eq!(read(&path, CorpusFormat::SEARCH_R1).unwrap(), expected);
    let path = write(&folder, "titled.jsonl", rows[3].as_bytes());
    assert_eq!(
        CorpusFormat::detect(&path).unwrap(),
        CorpusFormat::SEARCH_R1
    );
}

#[test]
fn shards_are_read_in_the_order_of_their_names_and_lines_count_on() {
    let folder = tempfile::tempdir().unwrap();
    write(
        &folder,
        "b.jsonl.gz",
        &gzip(b"\n{\"_id\":\"2\",\"text\":\"y\"}\n\n"),
    );
    write(&folder, "a.jsonl", b"{\"_id\":\"1\",\"text\":\"x\"}\n");
    write(&folder, "c.jsonl", b"{\"_id\":\"3\",\"text\":\"z\"}\n{}\n");
    write(&folder, "readme.txt", b"no corpus");
    write(&folder, ".d.jsonl", b"no corpus");
    let mut reader =
        CorpusReader::open(folder.path(), CorpusFormat::detect(folder.path()).unwrap()).unwrap();
    let mut next = || {
        reader
            .next()
            .unwrap()
            .map(|passage| (passage.id, reader.line()))
    };
    assert_eq!(next().unwrap(), ("1".to_owned(), 1));
    assert_eq!(next().unwrap(), ("2".to_owned(), 3));
    assert_eq!(next().unwrap(), ("3".to_owned(), 5));
    let message = next().unwrap_err().to_string();
    assert!(
        message.contains("c.jsonl` line 2: field `_id` is missing"),
        "{message}"
    );
    write(&folder, "page.md", b"# Page");
    let message = read(folder.path(), CorpusFormat::BEIR)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("holds both .jsonl and .md files"),
        "{message}"
    );
    let empty = tempfile::tempdir().unwrap();
    let message = read(empty.path(), CorpusFormat::BEIR)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("holds no corpus; pass a file, or a folder"),
        "{message}"
    );
}

#[test]
fn a_comment_in_code_is_no_title() {
    let folder = tempfile::tempdir().unwrap();
    let text = b"```sh\n# get it\n```\n\n# Installing\n\nText.\n";
    let page = write(&folder, "install.md", text);
    let passages = read(&page, CorpusFormat::WHOLE_PAGES).unwrap();
    assert_eq!(passages[0].title, "Installing");
}

#[test]
fn a_folder_of_tables_or_lists_is_read_where_it_has_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "dataset_infos.json", b"{}");
    write(&folder, "b.tsv", b"id\ttext\ttitle\n2\ty\tU\n");
    write(&folder, "a.tsv", b"id\ttext\ttitle\n1\tx\tT\n");
    let expected = vec![Passage::new("1", "T", "x"), Passage::new("2", "U", "y")];
    let format = CorpusFormat::detect(folder.path()).unwrap();
    assert_eq!(read(folder.path(), format).unwrap(), expected);
    let json = br#"[{"id":"3","title":"V","text":"z"}]"#;
    write(&folder, "c.json", json);
    let message = read(folder.path(), format).unwrap_err().to_string();
    assert!(
        message.contains("holds both .json and .tsv files"),
        "{message}"
    );
    write(&folder, "d.jsonl", &json[1..json.len() - 1]);
    let expected = vec![Passage::new("3", "V", "z")];
    assert_eq!(read(folder.path(), format).unwrap(), expected);
}

#[test]
fn a_readme_beside_rows_is_no_page() {
    let row = br#"{"id":"1","title":"T","text":"x"}"#.as_slice();
    let files = [
        ("data.jsonl", row.to_vec()),
        (
            "data.json",
            [b"[".as_slice(), row, b"]".as_slice()].concat(),
        ),
        ("data.csv", b"id,title,text\n1,T,x\n".to_vec()),
    ];
    for (name, content) in files {
        let folder = tempfile::tempdir().unwrap();
        write(&folder, "README.md", b"# A data set\n\nOf rows.\n");
        let format = CorpusFormat::detect(folder.path()).unwrap();
        assert_eq!(format, CorpusFormat::PAGES, "alone it is a page");
        write(&folder, name, &content);
        let format = CorpusFormat::detect(folder.path()).unwrap();
        let passages = read(folder.path(), format).unwrap();
        assert_eq!(passages, [Passage::new("1", "T", "x")], "{name}");
        // Among pages it is one.
        write(&folder, "page.md", b"# Page\n\nText.\n");
        let both = read(folder.path(), CorpusFormat::PAGES);
        assert_eq!(both.is_ok(), name != "data.jsonl", "{name}");
    }
}

#[test]
fn markdown_files_are_pages() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "b.md", b"# Heading\n\nText.\n");
    write(
        &folder,
        "a.md",
        b"---\ntitle: \"Given: one\"\nyear: 1999\ntags:\n  - x\n---\nText.\n\n## Part\n\nMore.\n",
    );
    write(&folder, "c.markdown", b"---\nnot closed");
    let passages = read(folder.path(), CorpusFormat::detect(folder.path()).unwrap()).unwrap();
    let given = |id: &str, text: &str| {
        Passage::new(id, "Given: one", text)
            .with_field("page", "a")
            .with_field("year", "1999")
    };
    let expected = vec![
        given("a#0", "Text."),
        given("a#1", "Part\nMore.").with_field("section", "Part"),
        Passage::new("b#0", "Heading", "Text.").with_field("page", "b"),
        Passage::new("c#0", "c", "---\nnot closed").with_field("page", "c"),
    ];
    assert_eq!(passages, expected);
    // Folders below are read too, hidden ones aside.
    for below in ["sub", ".hidden", "_posts"] {
        std::fs::create_dir(folder.path().join(below)).unwrap();
    }
    write(&folder, "sub/e.md", b"Below.");
    write(&folder, "_posts/_index.md", b"Posts.");
    write(&folder, ".hidden/f.md", b"Hidden.");
    let passages = read(folder.path(), CorpusFormat::WHOLE_PAGES).unwrap();
    let mut ids: Vec<&str> = passages.iter().map(|page| page.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["_index", "a", "b", "c", "e"]);
    let message = read(&write(&folder, "d.md", b"\xff"), CorpusFormat::PAGES)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("d.md`: byte 1 is not UTF-8; convert"),
        "{message}"
    );
}

#[test]
fn pages_of_one_name_are_called_after_their_paths() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("guide/api")).unwrap();
    for name in ["index.md", "guide/index.md", "guide/api/index.markdown"] {
        write(&folder, name, b"Text.");
    }
    write(&folder, "guide/setup.md", b"# Setup\n\nText.");
    let pages = read(folder.path(), CorpusFormat::WHOLE_PAGES).unwrap();
    let named = |page: &Passage| (page.id.clone(), page.title.clone());
    let expected = [
        ("guide/api/index", "guide/api/index"),
        ("guide/index", "guide/index"),
        ("setup", "Setup"),
        ("index", "index"),
    ];
    let expected = expected.map(|(id, title)| (id.to_owned(), title.to_owned()));
    assert_eq!(pages.iter().map(named).collect::<Vec<_>>(), expected);
    write(&folder, "guide/setup.markdown", b"Twice.");
    let twice = read(folder.path(), CorpusFormat::PAGES).unwrap_err();
    let twice = twice.to_string();
    assert!(
        twice.contains("guide/setup.md` and `") && twice.contains("(1 such in all); rename"),
        "{twice}"
    );
}

#[test]
fn lines_that_are_not_text_or_too_long_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(
        &folder,
        "c.jsonl",
        b"{\"_id\":\"1\",\"text\":\"x\"}\n{\"_id\":\"2\",\"text\":\"\xff\"}\n",
    );
    let message = read(&path, CorpusFormat::BEIR).unwrap_err().to_string();
    assert!(
        message.contains("line 2: byte 20 is not UTF-8; convert"),
        "{message}"
    );
    // 65 MiB of blanks pack into little, as a hostile file would have it.
    let bomb = gzip(&vec![b' '; 65 << 20]);
    let message = read(&write(&folder, "b.jsonl.gz", &bomb), CorpusFormat::BEIR)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("line 1: a line of more than 64 MiB; write one record per line"),
        "{message}"
    );
}

#[test]
fn a_hostile_gzip_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let row = b"{\"_id\":\"a\",\"text\":\"b\"}\n";
    let whole = gzip(row);
    let refused = |name: &str, bytes: &[u8]| {
        let error = read(&write(&folder, name, bytes), CorpusFormat::BEIR).unwrap_err();
        assert!(error.to_string().contains(name), "{name}: {error}");
    };
    refused("magic.jsonl.gz", &whole[..2]);
    refused("head.jsonl.gz", &whole[..9]);
    // A checksum, a length that are not those of the text.
    for from_end in [8, 4] {
        let mut wrong = whole.clone();
        let at = wrong.len() - from_end;
        wrong[at] ^= 0xff;
        refused("trailer.jsonl.gz", &wrong);
    }
    let mut method = whole.clone();
    method[2] = 7;
    refused("method.jsonl.gz", &method);
    // A name and a comment without an end, in place of the text.
    for flag in [0x08, 0x10] {
        let mut endless = whole[..10].to_vec();
        endless[3] = flag;
        endless.resize(20 << 20, b'a');
        refused("name.jsonl.gz", &endless);
    }
    refused("garbage.jsonl.gz", &[&whole[..], b"more"].concat());
    refused("packed-twice.jsonl.gz", &gzip(&whole));
    refused("nothing.jsonl.gz", &gzip(&vec![b'\n'; 32 << 20]));
    let members = [gzip(b"").repeat(50_000), whole].concat();
    let path = write(&folder, "members.jsonl.gz", &members);
    assert_eq!(read(&path, CorpusFormat::BEIR).unwrap().len(), 1);
}

/// A cache whose blobs were removed, a name in another encoding.
#[cfg(target_os = "linux")]
#[test]
fn no_part_of_a_folder_is_left_out() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    let rows = tempfile::tempdir().unwrap();
    write(&rows, "a.jsonl", b"{\"_id\":\"1\",\"text\":\"x\"}\n");
    symlink("nowhere", rows.path().join("b.jsonl")).unwrap();
    let error = read(rows.path(), CorpusFormat::BEIR).unwrap_err();
    let gone = matches!(&error, ReadError::Missing { path } if path.ends_with("b.jsonl"));
    assert!(gone, "{error}");
    let pages = tempfile::tempdir().unwrap();
    write(&pages, "a.md", b"Text.");
    symlink("nowhere", pages.path().join("b.md")).unwrap();
    let error = read(pages.path(), CorpusFormat::PAGES).unwrap_err();
    assert!(matches!(error, ReadError::Missing { .. }), "{error}");
    std::fs::remove_file(pages.path().join("b.md")).unwrap();
    let latin = pages.path().join(OsStr::from_bytes(b"caf\xe9.md"));
    std::fs::write(latin, "Text.").unwrap();
    let error = read(pages.path(), CorpusFormat::PAGES).unwrap_err();
    assert!(error.to_string().contains("name is not UTF-8"), "{error}");
}

#[test]
fn parts_that_are_packed_otherwise_are_told() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder, "a.jsonl", b"{\"_id\":\"1\",\"text\":\"x\"}\n");
    let begins: [(&str, &[u8]); 4] = [
        ("zst", b"\x28\xb5\x2f\xfd\x04\0"),
        ("xz", b"\xfd7zXZ\0\0\x04"),
        ("bz2", b"BZh91AY&SY\0"),
        ("lz4", b"\x04\x22\x4d\x18\x64"),
    ];
    for (end, bytes) in begins {
        let path = write(&folder, &format!("b.jsonl.{end}"), bytes);
        // One part of a folder is not left out of the corpus.
        for named in [path.as_path(), folder.path()] {
            let message = read(named, CorpusFormat::BEIR).unwrap_err().to_string();
            let told = format!("b.jsonl.{end}`: packed with ");
            assert!(message.contains(&told), "{message}");
        }
        std::fs::remove_file(path).unwrap();
    }
    let zip = write(&folder, "set.jsonl", b"PK\x03\x04\x14\0");
    let message = read(&zip, CorpusFormat::BEIR).unwrap_err().to_string();
    assert!(message.contains("packed with zip"), "{message}");
}

#[test]
fn content_hash_covers_title_and_text_apart() {
    assert_ne!(content_hash("a", "bc"), content_hash("ab", "c"));
}

proptest::proptest! {
    #[test]
    fn what_is_written_is_read_back(
        rows in proptest::collection::vec(("[^\n\r]{1,20}", ".{0,80}", "[a-z]{1,9}"), 1..20),
        pack in proptest::bool::ANY,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let passage = |at: usize, (title, text, lang): &(String, String, String)| {
            Passage::new(format!("{at}"), title, text).with_field("lang", lang)
        };
        let expected = rows.iter().enumerate().map(|(at, row)| passage(at, row)).collect::<Vec<_>>();
        for format in [CorpusFormat::BEIR, CorpusFormat::SEARCH_R1] {
            let row = |Passage { id, title, text, fields }: &Passage| match () {
                () if format == CorpusFormat::BEIR => serde_json::json!({"_id": id, "title": title, "text": text, "metadata": fields}),
                () => serde_json::json!({"id": id, "contents": format!("\"{title}\"\n{text}"), "lang": fields["lang"]}),
            };
            let lines = expected.iter().map(|passage| format!("{}\n", row(passage))).collect::<Vec<_>>().concat();
            let bytes = if pack { gzip(lines.as_bytes()) } else { lines.into_bytes() };
            let path = write(&folder, "rows.jsonl", &bytes);
            proptest::prop_assert_eq!(CorpusFormat::detect(&path).unwrap(), format);
            proptest::prop_assert_eq!(&read(&path, format).unwrap(), &expected);
        }
    }
}

#[test]
fn format_names_round_trip() {
    for format in CorpusFormat::all() {
        assert_eq!(format.name().parse::<CorpusFormat>().unwrap(), format);
        assert_eq!(
            serde_json::to_string(&format).unwrap(),
            format!("\"{format}\"")
        );
    }
    let message = "bier".parse::<CorpusFormat>().unwrap_err().to_string();
    assert!(message.contains("beir, search-r1, pages"), "{message}");
}

#[test]
fn digest_separates_fields() {
    let digest = |id: &str, title: &str| {
        let mut hasher = CorpusHasher::new();
        hasher.update(id, title, "x", &BTreeMap::new());
        hasher.finish()
    };
    assert_ne!(digest("ab", "c"), digest("a", "bc"));
    assert_eq!(digest("ab", "c").len(), 64);
}

#[test]
fn whole_pages_are_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let content = "# A\n\nx\n\n## B\n\ny";
    let row = serde_json::json!({"id": "a", "title": "A", "content": content, "year": 1990});
    let path = write(&folder, "pages.jsonl", format!("{row}\n").as_bytes());
    let expected = Passage::new("a", "A", content).with_field("year", "1990");
    assert_eq!(read(&path, CorpusFormat::WHOLE_PAGES).unwrap(), [expected]);
    assert_eq!(CorpusFormat::detect(&path).unwrap(), CorpusFormat::PAGES);
    assert_eq!(CorpusFormat::PAGES.whole(), CorpusFormat::WHOLE_PAGES);
    assert_eq!(CorpusFormat::BEIR.whole(), CorpusFormat::BEIR);
}

#[test]
fn a_json_list_is_a_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, text: &str| {
        read(
            &write(&folder, name, text.as_bytes()),
            CorpusFormat::WHOLE_PAGES,
        )
    };
    let both = "\u{feff} [\n{\"id\": \"a\", \"title\": \"A\", \"content\": \"x ], y\"},\n{\"id\": 2, \"content\": \"é\"} ]\n";
    let expected = [Passage::new("a", "A", "x ], y"), Passage::new("2", "", "é")];
    assert_eq!(list("corpus.json", both).unwrap(), expected);
    for (text, message) in [
        ("[]", "holds no passages"),
        ("[{\"id\": \"a\", \"content\": \"x\"}", "row 2: no comma"),
        ("[{\"id\": \"a\", \"content\": \"x\"} 5]", "row 2: no comma"),
        (
            "[{\"id\": \"a\", \"content\": \"x\"},",
            "row 2: the list is not closed",
        ),
        (
            "[{\"id\": \"a\", \"content\": \"x\"}] 5",
            "something follows",
        ),
        ("[5]", "row 1: not a JSON object"),
        ("[{\"id\": \"a\"}]", "row 1: field `content` is missing"),
        ("[{\"id\": ", "row 1: not JSON"),
    ] {
        let error = list("bad.json", text).unwrap_err().to_string();
        assert!(error.contains(message), "{text}: {error}");
    }
}

#[test]
fn equal_ids_of_several_corpora_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("corpus.jsonl"), BEIR).unwrap();
        place
    };
    let read_all = |paths: &[PathBuf]| -> Result<Vec<Passage>, ReadError> {
        CorpusReader::open_all(paths, CorpusFormat::BEIR)?.collect()
    };
    let both = [place("nfcorpus"), place("scifact")];
    let of = |set: &str| {
        let named = |id: &str| CorpusReader::id_among(set, id);
        [
            Passage::new(named("a"), "T", "x").with_field("dataset", set),
            Passage::new(named("7"), "", "y").with_field("dataset", set),
        ]
    };
    let expected = [of("nfcorpus"), of("scifact")].concat();
    assert_eq!(read_all(&both).unwrap(), expected);
    assert_eq!(expected[0].id, "nfcorpus/a");
    // One alone is as it was.
    let alone = read_all(&both[..1]).unwrap();
    assert_eq!(alone, read(&both[0], CorpusFormat::BEIR).unwrap());
    // Lines begin anew in each, and each has passages.
    let mut reader = CorpusReader::open_all(&both, CorpusFormat::BEIR).unwrap();
    let mut lines = Vec::new();
    while reader.next().is_some() {
        lines.push(reader.line());
    }
    assert_eq!(lines[..2], lines[2..]);
    let empty = place("empty");
    std::fs::write(empty.join("corpus.jsonl"), "").unwrap();
    for paths in [[&empty, &both[0]], [&both[0], &empty]] {
        let error = read_all(&paths.map(Clone::clone)).unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
    }
    let error = read_all(&[both[0].clone(), place("other/nfcorpus")]).unwrap_err();
    assert!(
        error.to_string().contains("both called `nfcorpus`"),
        "{error}"
    );
}
