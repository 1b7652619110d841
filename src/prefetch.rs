//! Prefetch hints on x86-64 and 64-bit ARM. Elsewhere they do nothing, because stable Rust has no intrinsic for them.

/// Prefetches the cache line of an address. The address may be invalid.
#[inline]
pub(crate) fn prefetch_at<T: ?Sized>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing and cannot fault, whatever the address; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: `prfm` changes no register, no flag and no memory, and cannot fault, whatever the address.
    unsafe {
        let place = place.cast::<u8>();
        std::arch::asm!("prfm pldl1keep, [{place}]", place = in(reg) place, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = place;
}
