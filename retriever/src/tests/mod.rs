//! Indexes, rankings, remote retrievers and the server, from outside.

mod dense;
mod index_changes;
mod index_damage;
mod index_folder;
mod parquet_corpora;
mod relevance;
mod remote;
mod server;
mod shards;
mod vector_files;
