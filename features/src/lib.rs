//! Nothing but a manifest: it holds the features that dependencies are compiled with.
