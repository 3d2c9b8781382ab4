"""Lucene in this process, set up as Anserini sets it up. Needs PYTHONPATH, JAR and JAVA_HOME from bench/peers.sh."""

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


class Searcher:
    """The query, similarity and tie order of Anserini's `SearchCollection -bm25`, scores as Lucene computes them.

    `SearchCollection` itself rounds scores to four decimals and then pulls ties apart.
    """

    def __init__(self, index, k1=0.9, b=0.4):
        lucene = jpype.JPackage("org").apache.lucene
        path = jpype.JClass("java.nio.file.Paths").get(str(index))
        self.reader = lucene.index.DirectoryReader.open(lucene.store.FSDirectory.open(path))
        self.searcher = lucene.search.IndexSearcher(self.reader)
        self.searcher.setSimilarity(lucene.search.similarities.BM25Similarity(k1, b))
        self.generator = jpype.JClass("io.anserini.search.query.BagOfWordsQueryGenerator")()
        self.analyzer = english_analyzer()
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
        query = self.generator.buildQuery("contents", self.analyzer, text)
        found = self.searcher.search(query, k, self.order, True)
        return [(self.ids[entry.doc], float(entry.score)) for entry in found.scoreDocs]
