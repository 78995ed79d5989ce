//! Values of every type of the protocol, for tests: from a seed, small, and with borrowed parts that are never freed.

use super::bitmap::Bitmap;
use super::callback::{CbArgOp, CbResOp, OffloadInfo};
use super::ops::{ArgOp, CreateKind, ResOp, WhyNoDelegation, WhyNoDelegationKind};
use super::types::{ClientId, DetailedResult, FileType4, NfsStat, OpResult, Outcome, SecInfo};
use super::wire::{FileData, Opaque, Xdr, XdrChain, XdrList};

pub struct Sampler(u64);

impl Sampler {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % end as u64).unwrap_or(0)
    }

    pub fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        let at = self.below(from.len());
        from.get(at).unwrap_or_else(|| unreachable!("nothing to pick from"))
    }

    pub fn bytes(&mut self, max: usize) -> &'static [u8] {
        let len = self.below(max.min(40) + 1);
        let bytes: Vec<u8> = (0..len).map(|_| self.number().to_le_bytes()[0]).collect();
        bytes.leak()
    }
}

pub trait Sample<'a>: Sized {
    fn sample(chance: &mut Sampler) -> Self;
}

macro_rules! sample_by {
    ($($ty:ty: $make:expr;)*) => {$(
        impl<'a> Sample<'a> for $ty {
            fn sample(chance: &mut Sampler) -> Self {
                let make: fn(&mut Sampler) -> $ty = $make;
                make(chance)
            }
        }
    )*};
}

sample_by! {
    (): |_| ();
    bool: |chance| chance.number() & 1 == 1;
    u32: |chance| u32::try_from(chance.number() >> 32).unwrap_or(0);
    u64: Sampler::number;
    i32: |chance| u32::sample(chance).cast_signed();
    i64: |chance| chance.number().cast_signed();
    ClientId: |chance| ClientId(chance.number());
    Bitmap: |chance| {
        let count = chance.below(6);
        Bitmap::of(&(0..count).map(|_| u32::sample(chance) % 100).collect::<Vec<_>>())
    };
    FileData<'a>: |chance| FileData::Slice(chance.bytes(40));
    SecInfo<'a>: |chance| match chance.below(2) {
        0 => SecInfo::Flavor(1),
        _ => SecInfo::Gss(Sample::sample(chance)),
    };
    CreateKind<'a>: |chance| match FileType4::sample(chance) {
        FileType4::Link => CreateKind::Link(Sample::sample(chance)),
        kind @ (FileType4::Block | FileType4::Character) => CreateKind::Device(kind, Sample::sample(chance)),
        FileType4::Regular => CreateKind::Other(77),
        kind => CreateKind::Plain(kind),
    };
    WhyNoDelegation: |chance| {
        let why = WhyNoDelegationKind::sample(chance);
        let says_more = matches!(why, WhyNoDelegationKind::Contention | WhyNoDelegationKind::Resource);
        WhyNoDelegation { why, comes_back: says_more && bool::sample(chance) }
    };
    OffloadInfo: |chance| match chance.below(2) {
        0 => OffloadInfo::Done(Sample::sample(chance)),
        _ => OffloadInfo::Failed { status: NfsStat::NoSpc, bytes_copied: chance.number() },
    };
    ArgOp<'a>: |chance| { let all = ArgOp::samples(chance); *chance.pick(&all) };
    ResOp<'a>: |chance| { let all = ResOp::samples(chance); *chance.pick(&all) };
    CbArgOp<'a>: |chance| { let all = CbArgOp::samples(chance); *chance.pick(&all) };
    CbResOp<'a>: |chance| { let all = CbResOp::samples(chance); *chance.pick(&all) };
}

impl<'a, const N: usize> Sample<'a> for [u8; N] {
    fn sample(chance: &mut Sampler) -> Self {
        std::array::from_fn(|_| chance.number().to_le_bytes()[0])
    }
}

impl<'a, T: Sample<'a>> Sample<'a> for Option<T> {
    fn sample(chance: &mut Sampler) -> Self {
        bool::sample(chance).then(|| T::sample(chance))
    }
}

impl<'a, const MAX: usize> Sample<'a> for Opaque<'a, MAX> {
    fn sample(chance: &mut Sampler) -> Self {
        Opaque(chance.bytes(MAX))
    }
}

impl<'a, T: Sample<'a> + Xdr<'a> + Copy + 'a, const MAX: usize> Sample<'a> for XdrList<'a, T, MAX> {
    fn sample(chance: &mut Sampler) -> Self {
        let count = chance.below(MAX.min(3) + 1);
        XdrList::of((0..count).map(|_| T::sample(chance)).collect::<Vec<T>>().leak())
    }
}

impl<'a, T: Sample<'a> + Xdr<'a> + Copy + 'a> Sample<'a> for XdrChain<'a, T> {
    fn sample(chance: &mut Sampler) -> Self {
        let count = chance.below(4);
        XdrChain::of((0..count).map(|_| T::sample(chance)).collect::<Vec<T>>().leak())
    }
}

impl<'a, T: Sample<'a>> Sample<'a> for OpResult<T> {
    fn sample(chance: &mut Sampler) -> Self {
        match chance.below(4) {
            0 => Err(NfsStat::Delay),
            _ => Ok(T::sample(chance)),
        }
    }
}

impl<'a, T: Sample<'a>, D: Sample<'a>, const STATUS: u32> Sample<'a> for DetailedResult<T, D, STATUS> {
    fn sample(chance: &mut Sampler) -> Self {
        match chance.below(4) {
            0 => Self::failed(NfsStat::Delay),
            1 => DetailedResult::Detailed(D::sample(chance)),
            _ => DetailedResult::Ok(T::sample(chance)),
        }
    }
}
