//! The size of JSON as a tree of values.

/// The number of values in a JSON text and of keys between them, at most. A tree of values takes a hundred bytes and more
/// for each, however few the text has: count before growing one of what another process sent.
pub fn count_values(json: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for &byte in json {
        if quoted {
            quoted = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
        } else {
            quoted = byte == b'"';
            count += usize::from(matches!(byte, b'[' | b'{' | b',' | b':'));
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_quotes_holds_no_values() {
        assert_eq!(count_values(b"7"), 1);
        assert_eq!(count_values(b"[[],[],[]]"), 7);
        assert_eq!(count_values(br#"{"a":"[,:{","b":"\",\\"}"#), 5);
    }
}
