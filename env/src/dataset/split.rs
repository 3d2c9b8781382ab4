//! The questions of a file that a fixed list of ids names.

use std::collections::HashMap;
use std::path::Path;

use forage_contracts::Task;

use super::error::DatasetError;
use super::names::Names;

/// The questions that a list names, in the order of the list: one a line, by its id or, where several data sets have the id, as
/// `DATA_SOURCE/ID`; blank lines and lines that begin with `#` say nothing.
///
/// # Errors
/// When the list cannot be read, names a question that is not there, one twice or an id of several data sets, or names nothing.
pub fn pick_ids(tasks: &[Task], path: &Path) -> Result<Vec<Task>, DatasetError> {
    let text = std::fs::read_to_string(path).map_err(|source| DatasetError::Io {
        path: path.to_owned(),
        source,
    })?;
    let names = Names::of(tasks);
    let mut first: HashMap<usize, usize> = HashMap::new();
    let mut picked = Vec::new();
    for (line, id) in (1..).zip(text.lines().map(str::trim)) {
        if id.is_empty() || id.starts_with('#') {
            continue;
        }
        let fault = |what: String| DatasetError::Ids {
            path: path.to_owned(),
            line,
            what,
        };
        let place = match names.places(id)[..] {
            [place] => place,
            [] => {
                return Err(fault(format!(
                    "the data set has no question `{id}`; the list belongs to another file"
                )));
            }
            [place, ..] => {
                let name = tasks[place].name();
                return Err(fault(format!(
                    "several data sets of the file have a question `{id}`; name the data set too, as in `{name}`"
                )));
            }
        };
        if let Some(before) = first.insert(place, line) {
            return Err(fault(format!(
                "id `{id}` stands on line {before} already; remove one of them"
            )));
        }
        picked.push(tasks[place].clone());
    }
    if picked.is_empty() {
        let what = "the list names no id; write one a line".to_owned();
        return Err(DatasetError::Ids {
            path: path.to_owned(),
            line: 1,
            what,
        });
    }
    Ok(picked)
}
