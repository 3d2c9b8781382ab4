//! `json.dumps` of Python, which templates reach as `tojson`.
//!
//! Separators `", "` and `": "`, keys in their order, floats as `repr` writes them, and none of the escapes that Jinja's
//! own filter adds for HTML: the text a model was trained on depends on each of these.

use std::io::{self, Write};

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{CharEscape, Formatter, Serializer};

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
pub(super) fn tojson(value: &Value, options: &Kwargs) -> Result<String, Error> {
    let mut layout = Layout {
        ascii: options
            .get::<Option<bool>>("ensure_ascii")?
            .unwrap_or(false),
        ..Layout::default()
    };
    let indent: Option<Value> = options.get("indent")?;
    if let Some(indent) = indent.filter(|indent| !indent.is_none()) {
        let text = indent.as_str().map(str::to_owned);
        layout.indent = Some(match text {
            Some(text) => text,
            None => " ".repeat(usize::try_from(indent)?),
        });
        ",".clone_into(&mut layout.comma);
    }
    let separators: Option<Vec<String>> = options.get("separators")?;
    if let Some(separators) = separators {
        let [comma, colon] = <[String; 2]>::try_from(separators).map_err(|_| {
            Error::new(
                ErrorKind::InvalidOperation,
                "tojson: separators are two strings",
            )
        })?;
        (layout.comma, layout.colon) = (comma, colon);
    }
    let sort = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    if value.is_undefined() {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            "tojson of an undefined value",
        ));
    }
    dumps(value, layout, sort)
        .map_err(|error| Error::new(ErrorKind::BadSerialization, "tojson").with_source(error))
}

fn dumps(value: &Value, layout: Layout, sort: bool) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut out, layout);
    if sort {
        let mut plain = serde_json::to_value(value)?;
        plain.sort_all_objects();
        plain.serialize(&mut serializer)?;
    } else {
        value.serialize(&mut serializer)?;
    }
    // The serializer writes nothing but whole UTF-8 strings.
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// A float as Python's `repr` writes it: the shortest digits that read back, scientific below 1e-4 and from 1e16 on.
pub(super) fn float(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value.is_sign_negative() { "-" } else { "" };
        return if value.is_nan() {
            "nan".to_owned()
        } else {
            format!("{sign}inf")
        };
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{value:?}")
}

/// The layout of `json.dumps`.
struct Layout {
    /// Escape everything beyond ASCII.
    ascii: bool,
    /// One level of indentation; everything on one line without.
    indent: Option<String>,
    comma: String,
    colon: String,
    depth: usize,
    /// True when the innermost container has an entry.
    filled: bool,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            ascii: false,
            indent: None,
            comma: ", ".to_owned(),
            colon: ": ".to_owned(),
            depth: 0,
            filled: false,
        }
    }
}

impl Layout {
    fn open<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.filled {
            self.line(writer)?;
        }
        self.filled = true;
        writer.write_all(bracket)
    }

    fn entry<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(self.comma.as_bytes())?;
        }
        self.line(writer)
    }

    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else {
            return Ok(());
        };
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(indent.as_bytes()))
    }
}

impl Formatter for Layout {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return writer.write_all(fragment.as_bytes());
        }
        let mut units = [0; 2];
        for letter in fragment.chars() {
            if matches!(letter, ' '..='~') {
                writer.write_all(&[letter as u8])?;
                continue;
            }
            for unit in letter.encode_utf16(&mut units) {
                write!(writer, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        serde_json::ser::CompactFormatter.write_char_escape(writer, escape)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.entry(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open(writer, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.entry(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(self.colon.as_bytes())
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _writer: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}
