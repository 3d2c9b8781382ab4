#[path = "/tmp/w/trainer/cli/tests/it/shape.rs"] mod shape;
#[path = "/tmp/w/trainer/cli/tests/it/tidy.rs"] mod tidy;
