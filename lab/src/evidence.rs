//! The names of passages and pages in questions, and in the index that is searched.

use forage_contracts::Task;
use forage_retriever::Index;

use crate::error::Result;

/// Names the pages of questions as the index does. Of a file in folders, `./docs/guide/index`, the longest end of the path that is the id
/// of a page is meant, and its name alone where none is or nothing tells.
pub(crate) fn name_pages(tasks: &mut [Task], index: Option<&Index>) -> Result<()> {
    let is_page = |name: &str| index.map_or(Ok(false), |index| is_there(index, name));
    for name in tasks.iter_mut().flat_map(|task| &mut task.evidence) {
        let Some(mut end) = name.strip_prefix("./") else {
            continue;
        };
        while let Some((_, rest)) = end.split_once('/') {
            if is_page(end)? {
                break;
            }
            end = rest;
        }
        let found = end.to_owned();
        *name = found;
    }
    Ok(())
}

/// Tells whether a name is the id of a passage, or of a page, which is there as the passages that it was cut into too.
pub(crate) fn is_there(index: &Index, name: &str) -> Result<bool> {
    let is_id = index.ordinal_of(name)?.is_some();
    Ok(is_id || index.ordinal_of(&format!("{name}#0"))?.is_some())
}

#[cfg(test)]
mod tests {
    use forage_retriever::{BuildRequest, CorpusFormat};

    use super::*;

    #[test]
    fn a_file_in_folders_is_the_page_that_the_index_has() {
        let folder = tempfile::tempdir().unwrap();
        let wiki = folder.path().join("wiki");
        std::fs::create_dir_all(wiki.join("guide")).unwrap();
        for name in ["index.md", "guide/index.md", "guide/setup.md"] {
            std::fs::write(wiki.join(name), "Text.").unwrap();
        }
        let asked = |index: Option<&Index>, name: &str| {
            let mut task = Task::new("t", "q");
            task.evidence = vec![name.to_owned()];
            let mut tasks = [task];
            name_pages(&mut tasks, index).unwrap();
            let [task] = tasks;
            task.evidence.concat()
        };
        for format in [CorpusFormat::PAGES, CorpusFormat::WHOLE_PAGES] {
            let place = folder.path().join(format.name());
            let request = BuildRequest::new(&wiki, format, &place);
            Index::build(&request, &mut |_, _| {}).unwrap();
            let index = Index::open(&place).unwrap();
            for (name, page) in [
                ("./guide/index", "guide/index"),
                ("./docs/guide/index", "guide/index"),
                ("./index", "index"),
                ("./guide/setup", "setup"),
                ("./guide/gone", "gone"),
                ("AC/DC", "AC/DC"),
            ] {
                assert_eq!(asked(Some(&index), name), page);
            }
        }
        assert_eq!(asked(None, "./guide/index"), "index");
    }
}
