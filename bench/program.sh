# Sourced from the repository's root: the program in `forage`, that of FORAGE_BIN or one that is built.
forage=${FORAGE_BIN:-}
if [ -z "$forage" ]; then
  cargo build --release --locked -p forage
  forage="${CARGO_TARGET_DIR:-target}/release/forage"
fi
