//! `forage bench products`: products of matrices by each kernel that a device has for them.

use anyhow::{Context, Result, bail};
use clap::Args;
use forage_trainer::Product;
use forage_trainer::device::DeviceSpec;

use crate::terminal::out;

/// Times products of matrices by each kernel, one line of JSON per product and kernel.
///
/// Products: `ROWS:COLUMNS:INNER:LAYOUTS:TYPES`, as in `64:2560:2048:rc:bf16`. Layouts tell what stands side by side in memory, of the left
/// matrix and of the right one: `r` rows, `c` columns. Types are `bf16`, `f32`, or `bf16-f32` for a result in f32.
#[derive(Args, Debug)]
pub(crate) struct Products {
    #[arg(required = true, value_name = "PRODUCTS")]
    jobs: Vec<String>,
    #[arg(long)]
    device: DeviceSpec,
    /// Only kernels whose name contains one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

fn parsed(text: &str) -> Result<Product> {
    let parts: Vec<&str> = text.split(':').collect();
    let &[rows, columns, inner, layouts, types] = parts.as_slice() else {
        bail!("it has not five parts");
    };
    let by_columns = match layouts {
        "rr" => [false, false],
        "rc" => [false, true],
        "cr" => [true, false],
        "cc" => [true, true],
        _ => bail!("`{layouts}` is none of rr, rc, cr and cc"),
    };
    let in_bf16 = match types {
        "bf16" => [true, true],
        "bf16-f32" => [true, false],
        "f32" => [false, false],
        _ => bail!("`{types}` is none of bf16, f32 and bf16-f32"),
    };
    let shape = [rows.parse()?, columns.parse()?, inner.parse()?];
    if shape.contains(&0) {
        bail!("a dimension is 0");
    }
    Ok(Product {
        shape,
        by_columns,
        in_bf16,
    })
}

impl Products {
    pub(super) fn run(self) -> Result<()> {
        let device = self.device.open()?;
        for text in &self.jobs {
            let product = parsed(text).with_context(|| format!("`{text}` is not a product"))?;
            product.measure(&self.only, &device, |found| {
                let line = serde_json::json!({"product": text, "found": found});
                out(&line.to_string());
            });
        }
        Ok(())
    }
}
