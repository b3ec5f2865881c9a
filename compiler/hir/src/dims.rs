//! Extents of dimensions. Those of a layer that is checked without a use are polynomials of the names in its signature.

use std::collections::{BTreeMap, HashMap};

use hgnnc_ir::{self as ir, VertexType};

/// The extent of a dimension. Equal extents are equal values.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dim {
    /// A number that is known.
    Fixed(usize),
    /// The number of vertices of a type.
    Count(VertexType),
    /// A polynomial of the names in a layer.
    Symbolic(Symbol),
}

impl Dim {
    /// The extent, if it is a number.
    pub fn fixed(self) -> Option<usize> {
        match self {
            Dim::Fixed(extent) => Some(extent),
            Dim::Count(_) | Dim::Symbolic(_) => None,
        }
    }

    /// Is it a polynomial?
    pub fn is_symbolic(self) -> bool {
        matches!(self, Dim::Symbolic(_))
    }

    /// The extent in a program.
    ///
    /// # Panics
    /// If it is symbolic: a layer in use has none.
    pub fn resolved(self) -> ir::Dim {
        match self {
            Dim::Fixed(extent) => ir::Dim::Fixed(extent),
            Dim::Count(vertex) => ir::Dim::Count(vertex),
            Dim::Symbolic(_) => panic!("dimensions of a layer in use are known"),
        }
    }
}

/// The handle of a polynomial.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol(u32);

/// A product of variables, sorted. Powers repeat the variable.
type Monomial = Vec<u32>;

/// A sum of monomials with integer coefficients other than 0.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct Polynomial(BTreeMap<Monomial, i64>);

/// Larger polynomials are not compared: nothing is known of them.
const MAX_TERMS: usize = 64;
/// Highest power of a polynomial that is compared.
const MAX_DEGREE: usize = 8;

/// Polynomials of variables that stand for whole numbers of at least 1.
#[derive(Default)]
pub struct Symbols {
    polynomials: Vec<Polynomial>,
    known: HashMap<Polynomial, Symbol>,
    variables: Vec<String>,
}

impl Symbols {
    /// A variable that equals nothing else for sure.
    pub fn variable(&mut self, name: &str) -> Dim {
        self.variables.push(name.to_owned());
        let variable = (self.variables.len() - 1) as u32;
        self.dim(Polynomial(BTreeMap::from([(vec![variable], 1)])))
    }

    /// `a + b`; `None` if it is not a polynomial.
    pub fn add(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        let sum = self.polynomial(a)?.plus(&self.polynomial(b)?, 1)?;
        Some(self.dim(sum))
    }

    /// `a - b`; `None` if it is not a polynomial.
    pub fn subtract(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        let difference = self.polynomial(a)?.plus(&self.polynomial(b)?, -1)?;
        Some(self.dim(difference))
    }

    /// `a · b`; `None` if it is not a polynomial.
    pub fn multiply(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        let product = self.polynomial(a)?.times(&self.polynomial(b)?)?;
        Some(self.dim(product))
    }

    /// `a / b`, where a product of variables and a number divides every term of `a`; else `None`.
    pub fn divide(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        let (a, b) = (self.polynomial(a)?, self.polynomial(b)?);
        let mut divisor = b.0.into_iter();
        let (Some((variables, factor)), None) = (divisor.next(), divisor.next()) else { return None };
        let mut quotient = BTreeMap::new();
        for (monomial, coefficient) in a.0 {
            let mut rest = monomial;
            for variable in &variables {
                rest.remove(rest.iter().position(|known| known == variable)?);
            }
            if coefficient % factor != 0 {
                return None;
            }
            quotient.insert(rest, coefficient / factor);
        }
        Some(self.dim(Polynomial(quotient)))
    }

    /// Are two extents different, whatever the variables are?
    pub fn differ(&self, a: Dim, b: Dim) -> bool {
        if !a.is_symbolic() && !b.is_symbolic() {
            return a != b;
        }
        match (self.polynomial(a), self.polynomial(b)) {
            (Some(a), Some(b)) => a.differs(&b),
            _ => false,
        }
    }

    /// May rows of these extents have as many elements? Extents that depend on the dataset are compared one by one.
    pub fn may_have_equal_volumes(&self, a: &[Dim], b: &[Dim]) -> bool {
        let counts = |dims: &[Dim]| {
            let mut counts: Vec<Dim> = dims.iter().copied().filter(|dim| matches!(dim, Dim::Count(_))).collect();
            counts.sort();
            counts
        };
        let volume = |dims: &[Dim]| {
            let known = dims.iter().filter(|dim| !matches!(dim, Dim::Count(_)));
            known.into_iter().try_fold(Polynomial::constant(1), |product, dim| product.times(&self.polynomial(*dim)?))
        };
        match (volume(a), volume(b)) {
            (Some(left), Some(right)) if counts(a) == counts(b) => !left.differs(&right),
            // A name may stand for an extent that depends on the dataset.
            _ => a.iter().chain(b).any(|dim| dim.is_symbolic()),
        }
    }

    /// May an extent be the sum of others?
    pub fn may_be_sum(&self, total: Dim, parts: impl IntoIterator<Item = Dim>) -> bool {
        let zero = Polynomial::default();
        let sum = parts.into_iter().try_fold(zero, |sum, part| sum.plus(&self.polynomial(part)?, 1));
        match (sum, self.polynomial(total)) {
            (Some(sum), Some(total)) => !sum.differs(&total),
            // Nothing is known of a sum of too many terms.
            (None, Some(_)) => total.is_symbolic(),
            (_, None) => false,
        }
    }

    /// Is there a polynomial of this handle?
    pub fn contains(&self, symbol: Symbol) -> bool {
        (symbol.0 as usize) < self.polynomials.len()
    }

    /// As it would be written: `heads * hidden + 1`.
    pub fn text(&self, symbol: Symbol) -> String {
        let mut text = String::new();
        // The highest powers come first.
        for (monomial, coefficient) in self.polynomials[symbol.0 as usize].0.iter().rev() {
            let mut factors: Vec<String> =
                monomial.iter().map(|variable| self.variables[*variable as usize].clone()).collect();
            let number = coefficient.unsigned_abs();
            if number != 1 || factors.is_empty() {
                factors.insert(0, number.to_string());
            }
            text.push_str(match (text.is_empty(), *coefficient < 0) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            });
            text.push_str(&factors.join(" * "));
        }
        text
    }

    /// `None` for an extent that depends on the dataset.
    fn polynomial(&self, dim: Dim) -> Option<Polynomial> {
        match dim {
            Dim::Fixed(extent) => Some(Polynomial::constant(i64::try_from(extent).ok()?)),
            Dim::Count(_) => None,
            Dim::Symbolic(symbol) => Some(self.polynomials[symbol.0 as usize].clone()),
        }
    }

    fn dim(&mut self, polynomial: Polynomial) -> Dim {
        let constant = match polynomial.0.iter().next() {
            None => Some(0),
            Some((monomial, number)) if monomial.is_empty() && polynomial.0.len() == 1 => usize::try_from(*number).ok(),
            Some(_) => None,
        };
        if let Some(extent) = constant {
            return Dim::Fixed(extent);
        }
        let symbol = *self.known.entry(polynomial).or_insert_with_key(|polynomial| {
            self.polynomials.push(polynomial.clone());
            Symbol((self.polynomials.len() - 1) as u32)
        });
        Dim::Symbolic(symbol)
    }
}

impl Polynomial {
    fn constant(number: i64) -> Self {
        Self(if number == 0 { BTreeMap::new() } else { BTreeMap::from([(vec![], number)]) })
    }

    fn plus(&self, other: &Self, factor: i64) -> Option<Self> {
        let mut sum = self.0.clone();
        for (monomial, coefficient) in &other.0 {
            let entry = sum.entry(monomial.clone()).or_insert(0);
            *entry = entry.checked_add(coefficient.checked_mul(factor)?)?;
        }
        sum.retain(|_, coefficient| *coefficient != 0);
        (sum.len() <= MAX_TERMS).then_some(Self(sum))
    }

    /// Do both have different values, whatever the variables are?
    ///
    /// With `x = 1 + y` for each variable, their difference is a polynomial of numbers `y ≥ 0`. It has no zero if all
    /// of its coefficients have the same sign, and the constant is not 0.
    fn differs(&self, other: &Self) -> bool {
        let shifted = || {
            let mut shifted = Self::default();
            for (monomial, coefficient) in &self.plus(other, -1)?.0 {
                if monomial.len() > MAX_DEGREE {
                    return None;
                }
                let mut term = Self::constant(*coefficient);
                for variable in monomial {
                    let factor = Self(BTreeMap::from([(vec![], 1), (vec![*variable], 1)]));
                    term = term.times(&factor)?;
                }
                shifted = shifted.plus(&term, 1)?;
            }
            Some(shifted)
        };
        let Some(shifted) = shifted() else { return false };
        let Some(constant) = shifted.0.get(&vec![]) else { return false };
        shifted.0.values().all(|coefficient| coefficient.signum() == constant.signum())
    }

    fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Self::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                let mut monomial = [&a[..], b].concat();
                monomial.sort_unstable();
                product = product.plus(&Self(BTreeMap::from([(monomial, x.checked_mul(*y)?)])), 1)?;
            }
        }
        Some(product)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_polynomials_are_equal() {
        let mut symbols = Symbols::default();
        let (heads, hidden) = (symbols.variable("heads"), symbols.variable("hidden"));
        let product = symbols.multiply(heads, hidden).unwrap();
        assert_eq!(symbols.multiply(hidden, heads), Some(product));
        assert_eq!(symbols.divide(product, heads), Some(hidden));
        assert_eq!(symbols.divide(hidden, heads), None);
        let twice = symbols.add(product, product).unwrap();
        assert_eq!(symbols.divide(twice, Dim::Fixed(2)), Some(product));
        assert_eq!(symbols.divide(twice, Dim::Fixed(3)), None);
        assert_eq!(symbols.subtract(twice, twice), Some(Dim::Fixed(0)));
        let Dim::Symbolic(symbol) = symbols.add(twice, Dim::Fixed(1)).unwrap() else { panic!("it has variables") };
        assert_eq!(symbols.text(symbol), "2 * heads * hidden + 1");
    }

    #[test]
    fn extents_differ_for_all_numbers_or_nothing_is_known() {
        let mut symbols = Symbols::default();
        let (a, b) = (symbols.variable("a"), symbols.variable("b"));
        let product = symbols.multiply(a, b).unwrap();
        let twice = symbols.add(a, a).unwrap();
        let next = symbols.add(product, Dim::Fixed(1)).unwrap();
        assert!(symbols.differ(twice, a));
        assert!(symbols.differ(next, a), "a * b is at least a");
        assert!(symbols.differ(next, Dim::Fixed(1)));
        assert!(!symbols.differ(product, a), "b may be 1");
        assert!(!symbols.differ(a, b));
        assert!(!symbols.differ(a, Dim::Fixed(8)));
        assert!(!symbols.differ(a, Dim::Count(VertexType::new(0))));
        assert!(symbols.differ(Dim::Fixed(8), Dim::Count(VertexType::new(0))));
    }

    #[test]
    fn volumes_and_sums_are_compared_as_polynomials() {
        let mut symbols = Symbols::default();
        let (a, b) = (symbols.variable("a"), symbols.variable("b"));
        let product = symbols.multiply(a, b).unwrap();
        let count = Dim::Count(VertexType::new(0));
        assert!(symbols.may_have_equal_volumes(&[a, b], &[product]));
        assert!(symbols.may_have_equal_volumes(&[a, count], &[count, a]));
        assert!(!symbols.may_have_equal_volumes(&[a], &[a, Dim::Fixed(2)]));
        assert!(!symbols.may_have_equal_volumes(&[count], &[Dim::Fixed(8)]));
        assert!(symbols.may_have_equal_volumes(&[Dim::Fixed(8), count], &[Dim::Fixed(2), count, Dim::Fixed(4)]));
        let next = symbols.add(a, Dim::Fixed(1)).unwrap();
        assert!(symbols.may_be_sum(next, [a, Dim::Fixed(1)]));
        assert!(!symbols.may_be_sum(next, [a]));
        assert!(!symbols.may_be_sum(Dim::Fixed(9), [Dim::Fixed(4), Dim::Fixed(4)]));
    }
}
