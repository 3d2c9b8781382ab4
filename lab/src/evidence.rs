//! The names of passages and pages in questions, and in the index that is searched.

use forage_contracts::Task;
use forage_retriever::Index;

use crate::error::Result;

/// Names the pages of questions as the index does. Of a file in folders, `./docs/guide/index`, the longest end of the path that is the id
/// of a page is meant, and its name alone where none is or nothing tells. A passage of a page, `velm#2`, is the page where the index has
/// whole pages.
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
    if let Some(index) = index {
        for task in tasks {
            for name in &mut task.evidence {
                let page = whole_page(index, name)?.to_owned();
                *name = page;
            }
            for (name, grade) in std::mem::take(&mut task.qrels) {
                let judged = task.qrels.entry(whole_page(index, &name)?.to_owned());
                let best = judged.or_insert(grade);
                *best = grade.max(*best);
            }
        }
    }
    Ok(())
}

/// The page of a passage that is not in the index, where the page is in it as a whole; else the name as it is.
fn whole_page<'a>(index: &Index, name: &'a str) -> Result<&'a str> {
    let cut = name.rsplit_once('#');
    let Some((page, _)) = cut.filter(|(_, number)| number.parse::<usize>().is_ok()) else {
        return Ok(name);
    };
    let is_whole = index.ordinal_of(name)?.is_none() && index.ordinal_of(page)?.is_some();
    Ok(if is_whole { page } else { name })
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

    #[test]
    fn a_passage_is_its_page_where_the_index_has_whole_pages() {
        let folder = tempfile::tempdir().unwrap();
        let wiki = folder.path().join("wiki");
        std::fs::create_dir_all(&wiki).unwrap();
        std::fs::write(wiki.join("velm.md"), "Text.").unwrap();
        let names = ["velm#0", "velm#2", "gone#1", "velm#a"].map(str::to_owned);
        for (format, found, graded) in [
            (CorpusFormat::PAGES, names.clone(), 4),
            (
                CorpusFormat::WHOLE_PAGES,
                ["velm", "velm", "gone#1", "velm#a"].map(str::to_owned),
                3,
            ),
        ] {
            let place = folder.path().join(format.name());
            let request = BuildRequest::new(&wiki, format, &place);
            Index::build(&request, &mut |_, _| {}).unwrap();
            let index = Index::open(&place).unwrap();
            let mut task = Task::new("t", "q");
            task.evidence = names.to_vec();
            task.qrels = names.iter().cloned().zip([2, 1, 1, 1]).collect();
            let mut tasks = [task];
            name_pages(&mut tasks, Some(&index)).unwrap();
            assert_eq!(tasks[0].evidence, found);
            assert_eq!(tasks[0].qrels.len(), graded);
            assert_eq!(tasks[0].qrels[&found[0]], 2);
        }
    }
}
