//! Parity in GF(2^8), the field of RAID-6: polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d).
//!
//! Parity row `r` of data units `d_0 .. d_{k-1}` is `sum((2^r)^(k-1-i) * d_i)`, evaluated by
//! Horner's rule: row 0 is plain XOR, row 1 doubles once per unit, row 2 twice. Any `m <= 3` of
//! the `k + m` units can be lost (k <= 29). With `k = 1` every row equals the data: a mirror.
//!
//! Doubling a byte is a shift, a sign mask and an XOR, which the compiler turns into vector code
//! without any `unsafe`; multiplying by a constant, needed for reconstruction alone, is eight such
//! steps.

/// Rows of parity supported.
pub const ROWS_MAX: usize = 3;

/// `acc = acc * 2^row + data`, for the bytes of `data`; the caller continues with [`pad`] where
/// a unit is shorter than the row.
pub fn step(acc: &mut [u8], data: &[u8], row: usize) {
    assert!(data.len() <= acc.len() && row < ROWS_MAX, "bytes beyond the parity unit would have no redundancy");
    match row {
        0 => xor(acc, data),
        1 => acc.iter_mut().zip(data).for_each(|(a, d)| *a = double(*a) ^ d),
        _ => acc.iter_mut().zip(data).for_each(|(a, d)| *a = double(double(*a)) ^ d),
    }
}

/// `step` with zeros.
pub fn pad(acc: &mut [u8], row: usize) {
    match row {
        0 => {}
        1 => acc.iter_mut().for_each(|a| *a = double(*a)),
        _ => acc.iter_mut().for_each(|a| *a = double(double(*a))),
    }
}

/// `acc += data`.
pub fn xor(acc: &mut [u8], data: &[u8]) {
    acc.iter_mut().zip(data).for_each(|(a, d)| *a ^= d);
}

#[inline(always)]
fn double(x: u8) -> u8 {
    (x << 1) ^ (((x as i8) >> 7) as u8 & 0x1d)
}

/// `acc += c * data`.
fn mul_add(acc: &mut [u8], data: &[u8], c: u8) {
    if c == 1 {
        return xor(acc, data);
    }
    let mut product = [0u8; 256];
    for (acc, data) in acc.chunks_mut(256).zip(data.chunks(256)) {
        let product = &mut product[..data.len()];
        product.fill(0);
        for bit in (0..8).rev() {
            let mask = if c >> bit & 1 == 1 { 0xff } else { 0 };
            product.iter_mut().zip(data).for_each(|(p, d)| *p = double(*p) ^ (d & mask));
        }
        xor(acc, product);
    }
}

fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    for bit in (0..8).rev() {
        product = double(product) ^ if b >> bit & 1 == 1 { a } else { 0 };
    }
    product
}

fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |acc, _| mul(acc, base))
}

fn inverse(a: u8) -> u8 {
    // The multiplicative group has 255 elements.
    power(a, 254)
}

/// The factor of data unit `i` in parity row `row`.
fn coefficient(row: usize, i: usize, k: usize) -> u8 {
    power(1 << row.min(ROWS_MAX), k - 1 - i)
}

/// Rebuilds unit `wanted` (0..k data, k.. parity) from `k` others, given as (index, bytes), all
/// of one length. `None` when they are not enough; never wrong.
pub fn reconstruct(k: usize, wanted: usize, units: &[(usize, &[u8])]) -> Option<Vec<u8>> {
    let units = units.get(..k)?;
    let length = units.first()?.1.len();
    if units.iter().any(|(index, bytes)| *index >= k + ROWS_MAX || bytes.len() != length) {
        return None;
    }
    if k == 1 {
        return Some(units.first()?.1.to_vec());
    }
    let rows: Vec<Vec<u8>> = units.iter().map(|(index, _)| row_of(*index, k)).collect();
    let weights = solve(rows, row_of(wanted, k))?;
    let mut out = vec![0; length];
    for ((_, bytes), weight) in units.iter().zip(weights) {
        if weight != 0 {
            mul_add(&mut out, bytes, weight);
        }
    }
    Some(out)
}

/// Unit `index` as a combination of the data units.
fn row_of(index: usize, k: usize) -> Vec<u8> {
    match index.checked_sub(k) {
        None => (0..k).map(|i| u8::from(i == index)).collect(),
        Some(row) => (0..k).map(|i| coefficient(row, i, k)).collect(),
    }
}

/// Weights `w` with `sum(w_i * rows_i) = target`: Gauss on the transposed matrix.
fn solve(rows: Vec<Vec<u8>>, target: Vec<u8>) -> Option<Vec<u8>> {
    let k = target.len();
    let mut system: Vec<Vec<u8>> = (0..k).map(|c| rows.iter().map(|row| row[c]).chain([target[c]]).collect()).collect();
    for column in 0..k {
        let pivot = (column..k).find(|&r| system[r][column] != 0)?;
        system.swap(column, pivot);
        let scale = inverse(system[column][column]);
        system[column].iter_mut().for_each(|x| *x = mul(*x, scale));
        let lead = system[column].clone();
        for (r, row) in system.iter_mut().enumerate() {
            let factor = row[column];
            if r != column && factor != 0 {
                row.iter_mut().zip(&lead).for_each(|(x, l)| *x ^= mul(*l, factor));
            }
        }
    }
    Some(system.into_iter().map(|row| row[k]).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn encode(data: &[Vec<u8>], m: usize) -> Vec<Vec<u8>> {
        (0..m)
            .map(|row| {
                let mut acc = vec![0; data[0].len()];
                data.iter().for_each(|unit| step(&mut acc, unit, row));
                acc
            })
            .collect()
    }

    #[test]
    fn any_k_units_give_all_the_others() {
        for k in [1usize, 2, 3, 5, 8, 29] {
            for m in 1..=ROWS_MAX {
                let data: Vec<Vec<u8>> =
                    (0..k).map(|i| (0..700).map(|j| (i * 31 + j * 7 + i * j) as u8).collect()).collect();
                let all: Vec<Vec<u8>> = data.iter().cloned().chain(encode(&data, m)).collect();
                for lost in subsets(k + m, m) {
                    let have: Vec<(usize, &[u8])> =
                        (0..k + m).filter(|i| !lost.contains(i)).map(|i| (i, all[i].as_slice())).collect();
                    for &wanted in &lost {
                        assert_eq!(reconstruct(k, wanted, &have).unwrap(), all[wanted], "k {k} m {m} {lost:?}");
                    }
                }
            }
        }
    }

    fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
        let step = if n > 12 { 5 } else { 1 };
        let mut out = Vec::new();
        for a in (0..n).step_by(step) {
            match size {
                1 => out.push(vec![a]),
                2 => out.extend((a + 1..n).step_by(step).map(|b| vec![a, b])),
                _ => out.extend((a + 1..n).flat_map(|b| (b + 1..n).map(move |c| vec![a, b, c])).step_by(step * step)),
            }
        }
        out
    }

    #[test]
    fn padding_is_a_step_with_zeros() {
        for row in 0..ROWS_MAX {
            let mut a: Vec<u8> = (0..=255).collect();
            let mut b = a.clone();
            step(&mut a, &[0; 256], row);
            pad(&mut b, row);
            assert_eq!(a, b);
        }
    }

    /// Golden: the parities are a disk format.
    #[test]
    fn golden_rows() {
        let data = vec![vec![0x01, 0x80], vec![0x02, 0xff], vec![0x40, 0x03]];
        assert_eq!(encode(&data, 3), vec![vec![0x43, 0x7c], vec![0x40, 0xda], vec![0x58, 0x30]]);
    }
}
