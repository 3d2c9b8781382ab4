//! Files that lie about themselves.

use std::io::Write as _;
use std::path::PathBuf;

use super::thrift::{Kind, Writer};
use crate::rows::RowReader;

/// A value of thrift.
#[derive(Clone)]
enum Value {
    I32(i64),
    I64(i64),
    False,
    Text(&'static str),
    Struct(Vec<(i16, Self)>),
    List(Kind, Vec<Self>),
    /// A kind, and bytes in place of the value.
    Raw(Kind, Vec<u8>),
}

use Value::{False, I32, I64, List, Raw, Struct, Text};

impl Value {
    fn kind(&self) -> Kind {
        match self {
            I32(_) => Kind::I32,
            I64(_) => Kind::I64,
            False => Kind::False,
            Text(_) => Kind::Binary,
            Struct(_) => Kind::Struct,
            List(..) => Kind::List,
            Raw(kind, _) => *kind,
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            I32(number) | I64(number) => out.signed(*number),
            False => {}
            Text(text) => out.binary(text.as_bytes()),
            Struct(fields) => {
                let mut last = 0;
                for (id, value) in fields {
                    out.field(last, *id, value.kind());
                    value.write(out);
                    last = *id;
                }
                out.stop();
            }
            List(kind, values) => {
                out.list(values.len() as u64, *kind);
                for value in values {
                    value.write(out);
                }
            }
            Raw(_, bytes) => out.0.extend_from_slice(bytes),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.write(&mut out);
        out.0
    }
}

const NONE: i64 = 0;
const SNAPPY: i64 = 1;
const GZIP: i64 = 2;
const BROTLI: i64 = 4;

/// One column, and one page of it.
#[derive(Clone)]
struct File {
    schema: Value,
    codec: i64,
    /// The physical type that the column has in its row group.
    kind: i64,
    /// The page's header.
    header: Vec<(i16, Value)>,
    page: Vec<u8>,
}

fn root(children: i64) -> Value {
    Struct(vec![(4, Text("root")), (5, I32(children))])
}

fn text() -> Value {
    let utf8 = (6, I32(0));
    Struct(vec![(1, I32(6)), (3, I32(0)), (4, Text("text")), utf8])
}

fn schema(elements: Vec<Value>) -> Value {
    List(Kind::Struct, elements)
}

/// The header of a page: its unpacked and packed sizes, how many values it has in which encoding.
fn header(unpacked: usize, packed: usize, values: i64, encoding: i64) -> Vec<(i16, Value)> {
    let rle = I32(3);
    let data = vec![
        (1, I32(values)),
        (2, I32(encoding)),
        (3, rle.clone()),
        (4, rle),
    ];
    vec![
        (1, I32(0)),
        (2, I32(unpacked as i64)),
        (3, I32(packed as i64)),
        (5, Struct(data)),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

impl File {
    /// A row with the text `abc`.
    fn sound() -> Self {
        let page = b"\x03\0\0\0abc".to_vec();
        Self {
            schema: schema(vec![root(1), text()]),
            codec: NONE,
            kind: 6,
            header: header(page.len(), page.len(), 1, 0),
            page,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"PAR1".to_vec();
        bytes.extend(Struct(self.header.clone()).bytes());
        bytes.extend(&self.page);
        let length = I64(bytes.len() as i64 - 4);
        let column = Struct(vec![
            (1, I32(self.kind)),
            (2, List(Kind::I32, vec![I32(0)])),
            (3, List(Kind::Binary, vec![Text("text")])),
            (4, I32(self.codec)),
            (5, I64(1)),
            (6, length.clone()),
            (7, length.clone()),
            (9, I64(4)),
        ]);
        let chunk = Struct(vec![(2, I64(0)), (3, column)]);
        let columns = List(Kind::Struct, vec![chunk]);
        let group = Struct(vec![(1, columns), (2, length), (3, I64(1))]);
        let footer = Struct(vec![
            (1, I32(1)),
            (2, self.schema.clone()),
            (3, I64(1)),
            (4, List(Kind::Struct, vec![group])),
        ]);
        let footer = footer.bytes();
        bytes.extend(&footer);
        bytes.extend((footer.len() as u32).to_le_bytes());
        bytes.extend(b"PAR1");
        bytes
    }

    fn read(&self) -> Result<Vec<String>, String> {
        read(&self.bytes())
    }
}

fn read(bytes: &[u8]) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("made.parquet");
    std::fs::write(&path, bytes).unwrap();
    let mut found = Vec::new();
    let mut reader = RowReader::open(&path).map_err(|error| error.to_string())?;
    while let Some(mut row) = reader.next_row().map_err(|error| error.to_string())? {
        let text = row.text("text", "").map_err(|fault| fault.what)?;
        found.push(text.into_owned());
    }
    Ok(found)
}

fn refused(file: &File, why: &str) {
    let error = file.read().unwrap_err();
    assert!(
        error.contains("made.parquet") && error.contains(why),
        "{error}"
    );
}

#[test]
fn what_the_tests_make_is_read() {
    let sound = File::sound();
    assert_eq!(sound.read().unwrap(), ["abc"]);
    let packed = gzip(&sound.page);
    let gzipped = File {
        codec: GZIP,
        header: header(sound.page.len(), packed.len(), 1, 0),
        page: packed,
        ..sound.clone()
    };
    assert_eq!(gzipped.read().unwrap(), ["abc"]);
    // Logical types, with settings and without, numbers of fields, groups.
    let group = Struct(vec![(3, I32(0)), (4, Text("more")), (5, I32(1))]);
    let Struct(mut leaf) = text() else {
        unreachable!()
    };
    leaf.push((9, I32(7)));
    leaf.push((10, Struct(vec![(1, Struct(vec![]))])));
    let nested = File {
        schema: schema(vec![root(1), Struct(leaf)]),
        ..sound.clone()
    };
    assert_eq!(nested.read().unwrap(), ["abc"]);
    let nested = File {
        schema: schema(vec![root(1), group, text()]),
        ..sound
    };
    // The column has another path then: an error, but none of the schema's.
    drop(nested.read());
}

#[test]
fn a_compression_that_cannot_be_read_is_named_with_those_that_can() {
    let packed = File {
        codec: BROTLI,
        ..File::sound()
    };
    refused(&packed, "a column is compressed with BROTLI");
    refused(&packed, "snappy, gzip, zstd and none can be read");
}

#[test]
fn schemas_are_followed_to_a_bound() {
    let group = |children| Struct(vec![(3, I32(0)), (4, Text("g")), (5, I32(children))]);
    let file = |elements| File {
        schema: schema(elements),
        ..File::sound()
    };
    let mut deep = vec![root(1)];
    deep.extend((0..50_000).map(|_| group(1)));
    deep.push(text());
    refused(&file(deep), "64 groups within each other");
    let wide = (0..40).map(|_| group(i64::from(i32::MAX)));
    refused(
        &file([root(1)].into_iter().chain(wide).collect()),
        "group of its schema is too large",
    );
    refused(
        &file(vec![root(-1), text()]),
        "group of its schema is too large",
    );
    refused(&file(vec![root(1); 70_000]), "its schema has 70000 parts");
    refused(&file(vec![root(2), text()]), "not a readable parquet file");
    let endless = Raw(Kind::List, vec![0xfc, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    let file = File {
        schema: endless,
        ..File::sound()
    };
    refused(&file, "not a readable parquet file");
    let file = File {
        schema: I32(1),
        ..File::sound()
    };
    refused(&file, "not a readable parquet file");
}

#[test]
fn footers_are_as_long_as_they_can_be() {
    let sound = File::sound().bytes();
    for length in [u32::MAX, 1 << 31, sound.len() as u32, 0] {
        let mut bytes = sound.clone();
        let at = bytes.len() - 8;
        bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        let error = read(&bytes).unwrap_err();
        assert!(error.contains("not a readable parquet file"), "{error}");
    }
    for short in [&b"PAR1"[..], b"PAR1PAR1", b"PAR1\0\0\0\0PAR1"] {
        let error = read(short).unwrap_err();
        assert!(error.contains("not a readable parquet file"), "{error}");
    }
}

#[test]
fn pages_are_unpacked_to_a_bound() {
    let sound = File::sound();
    let most = i32::MAX as usize;
    let announced = File {
        codec: SNAPPY,
        header: header(most, sound.page.len(), 1, 0),
        ..sound.clone()
    };
    refused(&announced, "over 1024 MiB unpacked");
    let negative = File {
        header: vec![
            (1, I32(0)),
            (2, I32(-1)),
            (3, I32(7)),
            (5, Struct(vec![(1, I32(1))])),
        ],
        ..sound.clone()
    };
    refused(&negative, "negative size");
    let longer = File {
        header: header(most / 4, most / 4, 1, 0),
        ..sound.clone()
    };
    refused(&longer, "larger than its column");
    let bomb = gzip(&vec![0; 32 << 20]);
    let packed = File {
        codec: GZIP,
        header: header(100, bomb.len(), 1, 0),
        page: bomb.clone(),
        ..sound.clone()
    };
    refused(&packed, "larger than it says");
    // In the second form levels come first, and are not packed; the last header counts.
    let second = |levels: i64| {
        let fields = [1, 0, 1, 0, levels, 0];
        let fields = (1..).zip(fields.map(I32));
        Struct(fields.collect())
    };
    let Struct(mut plain) = second(0) else {
        unreachable!()
    };
    plain.push((7, False));
    for first in [Struct(plain), second(50)] {
        let twice = File {
            codec: GZIP,
            header: vec![
                (1, I32(3)),
                (2, I32(100)),
                (3, I32(bomb.len() as i64)),
                (8, first),
                (8, second(0)),
            ],
            page: bomb.clone(),
            ..sound.clone()
        };
        refused(&twice, "larger than it says");
    }
}

#[test]
fn values_are_as_many_as_there_can_be() {
    let sound = File::sound();
    let many = i64::from(i32::MAX);
    let Struct(mut repeated) = text() else {
        unreachable!()
    };
    repeated[1] = (3, I32(2));
    let list = File {
        schema: schema(vec![root(1), Struct(repeated)]),
        header: header(sound.page.len(), sound.page.len(), many, 0),
        ..sound.clone()
    };
    refused(&list, "a column of lists has over 67108864 values");
    let size = sound.page.len() as i64;
    let dictionary = File {
        header: vec![
            (1, I32(2)),
            (2, I32(size)),
            (3, I32(size)),
            (7, Struct(vec![(1, I32(many)), (2, I32(0))])),
        ],
        ..sound.clone()
    };
    refused(&dictionary, "more values than bytes");
    for encoding in [6, 7] {
        let delta = File {
            header: header(sound.page.len(), sound.page.len(), 1, encoding),
            ..sound.clone()
        };
        refused(&delta, "write it with another encoding");
    }
}

#[test]
fn parts_are_what_they_are_taken_for() {
    let sound = File::sound();
    let other = File {
        kind: 1,
        ..sound.clone()
    };
    // The schema may be believed instead.
    drop(other.read());
    for (id, value) in [
        (1, Text("0")),
        (2, Text("7")),
        (5, I32(0)),
        (5, Struct(vec![(1, Text("x"))])),
        (5, Struct(vec![(5, Raw(Kind::Binary, vec![0xff; 9]))])),
        (9, Raw(Kind::Binary, vec![0xff, 0xff, 0xff, 0xff, 0x7f])),
        (9, Raw(Kind::Map, vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0xcc])),
        (9, Raw(Kind::List, vec![0x1c; 5000])),
    ] {
        let mut header = sound.header.clone();
        header.retain(|(field, _)| *field != id);
        header.push((id, value));
        let file = File {
            header,
            ..sound.clone()
        };
        refused(&file, "cannot be read");
    }
}
