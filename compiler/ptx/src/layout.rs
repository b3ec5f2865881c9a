//! How the elements of a row lie in the lanes of the team that computes it.
//!
//! The widths of a kernel mostly divide each other: 8 heads, 64 = 8 × 8 features. A [`Chain`] is such a list of widths,
//! `1 = w0 | w1 | … | wk`. Its *columns* are the elements of the widest, with each quotient `w(i+1) / w(i)` rounded up
//! to a power of two: a column is a number whose bits are those of one digit per quotient. A [`Layout`] says which bits
//! of the column are the position within a vector, which are the lane, and which count registers.
//!
//! A lane holds, of a narrower value, the elements that its columns belong to. So an element-wise operation on operands
//! of different widths needs no exchange between lanes, and a reduction from one width to another exchanges exactly
//! over the lane bits between them.

/// Widths that divide each other, from 1 on, without repetitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Chain {
    widths: Vec<usize>,
}

impl Chain {
    /// As many of these widths as make a chain that ends with the largest, the larger ones first.
    pub fn main(mut widths: Vec<usize>) -> Self {
        widths.sort_unstable();
        widths.dedup();
        let mut chain: Vec<usize> = vec![];
        for width in widths.into_iter().rev() {
            if width > 1 && chain.last().is_none_or(|wider| wider % width == 0) {
                chain.push(width);
            }
        }
        chain.push(1);
        chain.reverse();
        Self { widths: chain }
    }

    /// The position of a width.
    pub fn position(&self, width: usize) -> Option<usize> {
        self.widths.iter().position(|&known| known == width)
    }

    /// The width at a position.
    pub fn width(&self, position: usize) -> usize {
        self.widths[position]
    }

    /// The largest width, which is the last one.
    pub fn widest(&self) -> usize {
        self.widths[self.widths.len() - 1]
    }

    /// Digits of a column, the outermost first: quotient, bits, and the width that the digit completes.
    fn digits(&self) -> impl DoubleEndedIterator<Item = (usize, u32)> + '_ {
        self.widths.windows(2).map(|pair| {
            let quotient = pair[1] / pair[0];
            (quotient, quotient.next_power_of_two().trailing_zeros())
        })
    }

    /// Bits of a column.
    pub fn bits(&self) -> u32 {
        self.digits().map(|(_, bits)| bits).sum()
    }

    /// Bits of a column that lie below the elements of the `position`-th width.
    fn below(&self, position: usize) -> u32 {
        self.digits().skip(position).map(|(_, bits)| bits).sum()
    }

    /// The part that a digit has in the elements of the `position`-th width: for each digit that counts, its lowest bit
    /// in a column, its quotient, bits and stride.
    fn places(&self, position: usize) -> Vec<Digit> {
        let (mut places, mut low) = (vec![], 0);
        let mut stride = 1;
        let digits: Vec<(usize, u32)> = self.digits().collect();
        for (index, &(quotient, bits)) in digits.iter().enumerate().rev() {
            if index < position {
                places.push(Digit { low, bits, quotient, stride });
                stride *= quotient;
            }
            low += bits;
        }
        places
    }

    /// The element of the `position`-th width that a column belongs to; `None` where a digit is beyond its quotient.
    fn element(&self, position: usize, column: usize) -> Option<usize> {
        let mut element = 0;
        for digit in self.places(position) {
            let value = digit.of(column);
            if value >= digit.quotient {
                return None;
            }
            element += value * digit.stride;
        }
        Some(element)
    }
}

/// A digit of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Digit {
    low: u32,
    bits: u32,
    quotient: usize,
    stride: usize,
}

impl Digit {
    fn of(self, column: usize) -> usize {
        column >> self.low & ((1 << self.bits) - 1)
    }
}

/// A summand of a lane's element: `(lane >> shift & mask) · stride`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LanePart {
    /// Lowest lane bit of the part.
    pub shift: u32,
    /// Mask of the lane's bits after the shift.
    pub mask: u32,
    /// Elements for each unit of the masked bits.
    pub stride: usize,
}

/// A condition for an element to exist: `part(lane) + at < quotient`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bound {
    /// Lowest lane bit of the digit.
    pub shift: u32,
    /// After the shift; the part is this, times `step`.
    pub mask: u32,
    /// Worth of the lowest lane bit in the digit.
    pub step: usize,
    /// The register's constant summand of the digit.
    pub at: usize,
    /// The digit is below this.
    pub quotient: usize,
}

/// A register of a value: which element it is, besides the part of the lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The register's constant summand of the element's index; the lane adds its part.
    pub offset: usize,
    /// When the element exists. Empty: always.
    pub bounds: Vec<Bound>,
}

/// The assignment of columns to a team of `1 << lane_bits` lanes, as vectors of `1 << vector_bits` elements.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The widths of the values that share this layout.
    pub chain: Chain,
    /// Lanes of a team, as a power of two.
    pub lane_bits: u32,
    vector_bits: u32,
}

/// Most elements of a vector, as a power of two: 128 bits.
const MOST_VECTOR: u32 = 2;

impl Layout {
    /// A layout for a team of `1 << lane_bits` lanes.
    pub fn new(chain: Chain, lane_bits: u32) -> Self {
        let spare = chain.bits().saturating_sub(lane_bits).min(MOST_VECTOR);
        let fits = |bits: &u32| vectors_fit(&chain, *bits);
        let vector_bits = (0..=spare).rev().find(fits).unwrap_or(0);
        Self { chain, lane_bits, vector_bits }
    }

    /// As many lanes as have a vector each, at most `1 << most`.
    pub fn lanes_for(chain: &Chain, most: u32) -> u32 {
        let bits = chain.bits();
        let vector = (0..=MOST_VECTOR.min(bits)).rev().find(|&v| vectors_fit(chain, v)).unwrap_or(0);
        (bits - vector).min(most)
    }

    /// Lane bits that belong to no column: lanes that differ in them only hold the same.
    fn spare_bits(&self) -> u32 {
        self.lane_bits.saturating_sub(self.chain.bits() - self.vector_bits)
    }

    /// Columns' bits that are lanes: the lowest, and one past the last.
    fn lanes(&self) -> (u32, u32) {
        (self.vector_bits, self.vector_bits + self.lane_bits - self.spare_bits())
    }

    /// Bits of columns that count registers of the `position`-th width, ascending.
    fn slot_bits(&self, position: usize) -> Vec<u32> {
        let (first, end) = self.lanes();
        let below = self.chain.below(position);
        (below..self.chain.bits()).filter(|bit| !(first..end).contains(bit)).collect()
    }

    /// The column bits of the register with this number.
    fn slot_column(bits: &[u32], number: usize) -> usize {
        bits.iter().enumerate().map(|(i, bit)| (number >> i & 1) << bit).sum()
    }

    /// The registers of the `position`-th width. `None`: no lane has an element there.
    pub fn slots(&self, position: usize) -> Vec<Option<Slot>> {
        let bits = self.slot_bits(position);
        let (first, end) = self.lanes();
        let slot = |number: usize| {
            let column = Self::slot_column(&bits, number);
            let mut slot = Slot { offset: 0, bounds: vec![] };
            for digit in self.chain.places(position) {
                let at = digit.of(column);
                slot.offset += at * digit.stride;
                if at >= digit.quotient {
                    return None;
                }
                let (low, high) = (digit.low.max(first), (digit.low + digit.bits).min(end));
                let lanes = high.saturating_sub(low);
                let (step, mask) = (1usize << (low.saturating_sub(digit.low)), (1u32 << lanes) - 1);
                if at + mask as usize * step >= digit.quotient {
                    let shift = low - first + self.spare_bits();
                    slot.bounds.push(Bound { shift, mask, step, at, quotient: digit.quotient });
                }
            }
            Some(slot)
        };
        (0..1 << bits.len()).map(slot).collect()
    }

    /// The lane's part of the elements of the `position`-th width.
    pub fn lane_parts(&self, position: usize) -> Vec<LanePart> {
        let (first, end) = self.lanes();
        let part = |digit: Digit| {
            let (low, high) = (digit.low.max(first), (digit.low + digit.bits).min(end));
            (low < high).then(|| LanePart {
                shift: low - first + self.spare_bits(),
                mask: (1 << (high - low)) - 1,
                stride: digit.stride << (low - digit.low),
            })
        };
        self.chain.places(position).into_iter().filter_map(part).collect()
    }

    /// Elements that lie in consecutive registers and in memory one after another.
    pub fn vector(&self, position: usize) -> usize {
        1 << self.vector_bits.saturating_sub(self.chain.below(position))
    }

    /// The register of the `narrow`-th width that the columns of a register of the `wide`-th belong to.
    pub fn narrower(&self, wide: usize, number: usize, narrow: usize) -> usize {
        let column = Self::slot_column(&self.slot_bits(wide), number);
        let bits = self.slot_bits(narrow);
        bits.iter().enumerate().map(|(i, bit)| (column >> bit & 1) << i).sum()
    }

    /// Lane bits over which a reduction from the `wide`-th width to the `narrow`-th exchanges.
    pub fn exchanged(&self, wide: usize, narrow: usize) -> Vec<u32> {
        let (first, end) = self.lanes();
        let (low, high) = (self.chain.below(wide).max(first), self.chain.below(narrow).min(end));
        (low..high.max(low)).map(|bit| bit - first + self.spare_bits()).collect()
    }

    /// Lane bits that tell apart lanes with the same elements of the `position`-th width.
    pub fn replicas(&self, position: usize) -> u32 {
        let (first, end) = self.lanes();
        let copies = self.chain.below(position).clamp(first, end) - first;
        (1 << (self.spare_bits() + copies)) - 1
    }

    /// The element of the `position`-th width that lane and register hold.
    #[cfg(test)]
    fn element(&self, position: usize, lane: usize, number: usize) -> Option<usize> {
        let (first, _) = self.lanes();
        let column = Self::slot_column(&self.slot_bits(position), number) | (lane >> self.spare_bits()) << first;
        self.chain.element(position, column)
    }
}

/// Do aligned groups of `1 << bits` columns have elements one after another, in every width as far as it has them?
fn vectors_fit(chain: &Chain, bits: u32) -> bool {
    let len = 1usize << bits;
    let end = chain.widths.len() - 1;
    if bits > chain.bits() {
        return false;
    }
    (0..=end).all(|position| {
        // A vector of columns covers `group` elements of a narrower width.
        let below = chain.below(position);
        let group = len >> below.min(bits);
        let groups = 1usize << (chain.bits() - below.min(chain.bits())) >> group.trailing_zeros();
        group <= 1
            || (chain.widths[position].is_multiple_of(group)
                && (0..groups).all(|g| {
                    let element = |i: usize| chain.element(position, (g * group + i) << below);
                    match element(0) {
                        None => (0..group).all(|i| element(i).is_none()),
                        Some(first) => first.is_multiple_of(group) && (1..group).all(|i| element(i) == Some(first + i)),
                    }
                }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(widths: &[usize], lane_bits: u32) -> Layout {
        Layout::new(Chain::main(widths.to_vec()), lane_bits)
    }

    #[test]
    fn widths_that_divide_each_other_make_a_chain() {
        assert_eq!(Chain::main(vec![8, 64, 1, 64]).widths, [1, 8, 64]);
        assert_eq!(Chain::main(vec![3, 64, 8]).widths, [1, 8, 64]);
        assert_eq!(Chain::main(vec![1]).widths, [1]);
        assert_eq!(Chain::main(vec![3]).widths, [1, 3]);
    }

    #[test]
    fn a_lane_holds_the_head_of_its_features() {
        let layout = layout(&[8, 64], 4);
        assert_eq!((layout.vector(2), layout.vector(1)), (4, 1));
        let [features, heads] = [2, 1].map(|position| layout.slots(position).len());
        assert_eq!((features, heads), (4, 1));
        // Lane 5 has features 20 to 23, of head 2; lane 4 has the same head.
        assert_eq!((0..4).map(|slot| layout.element(2, 5, slot)).collect::<Vec<_>>(), [20, 21, 22, 23].map(Some));
        assert_eq!((layout.element(1, 4, 0), layout.element(1, 5, 0)), (Some(2), Some(2)));
        assert_eq!((layout.exchanged(2, 1), layout.exchanged(1, 0)), (vec![0], vec![1, 2, 3]));
        assert_eq!((layout.replicas(2), layout.replicas(1), layout.replicas(0)), (0, 1, 15));
    }

    #[test]
    fn what_is_no_power_of_two_has_bounds() {
        // Seven numbers for each of 8 heads: lanes without the eighth.
        let layout = layout(&[8, 56], 5);
        assert_eq!(layout.vector(2), 1);
        let slots = layout.slots(2);
        assert!(slots.iter().flatten().all(|slot| slot.bounds.len() == 1), "{slots:?}");
        // 349 classes in 32 lanes: registers that no lane has an element in are known.
        let wide = Layout::new(Chain::main(vec![349]), 5);
        assert_eq!(wide.slots(1).iter().flatten().count(), 11);
    }

    /// Every element of every width is held, by as many lanes as there are replicas, and what the parts say is what
    /// columns say.
    #[test]
    fn lanes_and_registers_hold_every_element() {
        let cases: [&[usize]; 9] =
            [&[1], &[3], &[8, 64], &[7, 56], &[5, 10, 60], &[2, 6, 48], &[349], &[8, 512], &[4, 12]];
        for widths in cases {
            for lane_bits in 0..=8 {
                let layout = layout(widths, lane_bits);
                for (position, &width) in layout.chain.widths.clone().iter().enumerate() {
                    let mut held = vec![0; width];
                    let replicas = layout.replicas(position).count_ones();
                    for lane in 0..1usize << lane_bits {
                        let own: usize = layout
                            .lane_parts(position)
                            .iter()
                            .map(|p| (lane >> p.shift & p.mask as usize) * p.stride)
                            .sum();
                        for (number, slot) in layout.slots(position).iter().enumerate() {
                            let found = slot.as_ref().and_then(|slot| {
                                let within =
                                    |b: &Bound| (lane >> b.shift & b.mask as usize) * b.step + b.at < b.quotient;
                                slot.bounds.iter().all(within).then_some(own + slot.offset)
                            });
                            assert_eq!(found, layout.element(position, lane, number), "{widths:?} {lane_bits}");
                            if let Some(element) = found {
                                held[element] += 1;
                            }
                        }
                    }
                    assert_eq!(held, vec![1 << replicas; width], "{widths:?} {lane_bits} lanes, width {width}");
                }
            }
        }
    }
}
