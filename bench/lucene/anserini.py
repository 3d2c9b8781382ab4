"""Lucene in this process, set up as Anserini sets it up. Needs PYTHONPATH, JAR and JAVA_HOME from `harness.peers.Anserini`."""

import os

import jpype


def start(heap="2g", threads=None):
    """Starts the Java machine with Anserini's jar; `threads` bounds the processors it believes in."""
    options = [f"-Xmx{heap}", "--enable-native-access=ALL-UNNAMED"]
    if threads:
        options.append(f"-XX:ActiveProcessorCount={threads}")
    library = os.path.join(os.environ["JAVA_HOME"], "lib", "server", "libjvm.so")
    jpype.startJVM(library, *options, classpath=[os.environ["JAR"]], convertStrings=False)


def english_analyzer():
    return jpype.JClass("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()


class Analyzer:
    """Anserini's default English analysis, a text to its terms."""

    def __init__(self):
        self.analyzer = english_analyzer()
        self.utils = jpype.JClass("io.anserini.analysis.AnalyzerUtils")
        self.String = jpype.JClass("java.lang.String")

    def __call__(self, text):
        terms = self.utils.analyze(self.analyzer, text)
        return str(self.String.join("\n", terms)).split("\n") if terms.size() else []


class Index:
    """A bare `IndexSearcher` with the query and similarity of Anserini's `SearchCollection -bm25`."""

    def __init__(self, index, k1=0.9, b=0.4):
        lucene = jpype.JPackage("org").apache.lucene
        path = jpype.JClass("java.nio.file.Paths").get(str(index))
        self.reader = lucene.index.DirectoryReader.open(lucene.store.FSDirectory.open(path))
        self.searcher = lucene.search.IndexSearcher(self.reader)
        self.searcher.setSimilarity(lucene.search.similarities.BM25Similarity(k1, b))
        self.generator = jpype.JClass("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self.analyzer = english_analyzer()

    def query(self, text):
        return self.generator.buildQuery("contents", self.analyzer, text)

    def best(self, text, k):
        """Lucene's `TopDocs`: numbers of documents and scores."""
        return self.searcher.search(self.query(text), k)

    def stored(self, text, k):
        """The lines that were indexed of the best k, as Java's strings."""
        found = self.best(text, k)
        fields = self.searcher.storedFields()
        return [fields.document(hit.doc).get("raw") for hit in found.scoreDocs]


class Searcher(Index):
    """Ids and scores with the tie order of Anserini's `SearchCollection`, scores as Lucene computes them.

    `SearchCollection` itself rounds scores to four decimals and then pulls ties apart.
    """

    def __init__(self, index):
        super().__init__(index)
        lucene = jpype.JPackage("org").apache.lucene
        fields = lucene.search.SortField
        self.order = lucene.search.Sort(fields.FIELD_SCORE, fields("id", fields.Type.STRING_VAL))
        self.ids = self._read_ids(lucene)

    def _read_ids(self, lucene):
        values = lucene.index.MultiDocValues.getBinaryValues(self.reader, "id")
        ids = []
        for document in range(self.reader.maxDoc()):
            values.advanceExact(document)
            ids.append(str(values.binaryValue().utf8ToString()))
        return ids

    def __call__(self, text, k):
        """[(id, score)] of the best k."""
        found = self.searcher.search(self.query(text), k, self.order, True)
        return [(self.ids[entry.doc], float(entry.score)) for entry in found.scoreDocs]
