//! Parses kernel bodies: declarations, labels, and instructions with their operands.

use super::builder::Builder;
use super::{Parser, Result};
use crate::lex::{Kind, Place, Token};
use crate::types::Type;

/// An operand as written.
#[derive(Clone, Debug)]
pub(crate) struct Arg<'a> {
    pub kind: ArgKind<'a>,
    pub place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum ArgKind<'a> {
    /// A register, or a variable plus an offset.
    Name(&'a str, i64),
    /// A special register, such as `%tid.x`.
    Special(&'a str, Option<&'a str>),
    /// A literal, and whether it is negated.
    Number(Kind<'a>, bool),
    Address(Box<Arg<'a>>, i64),
    Vector(Vec<Arg<'a>>),
    Pair(Box<Arg<'a>>, Box<Arg<'a>>),
    Not(Box<Arg<'a>>),
}

/// Modifiers of an opcode (the parts after the first); each must be consumed.
pub(crate) struct Modifiers<'a> {
    pub name: &'a str,
    pub place: Place,
    list: Vec<(&'a str, bool)>,
}

impl<'a> Modifiers<'a> {
    /// Consumes the modifier if it is present.
    pub fn flag(&mut self, name: &str) -> bool {
        match self.list.iter_mut().find(|(found, used)| *found == name && !used) {
            Some((_, used)) => {
                *used = true;
                true
            }
            None => false,
        }
    }

    /// Consumes the first of these modifiers that is present.
    pub fn one_of(&mut self, names: &[&str]) -> Option<&'a str> {
        let (name, used) = self.list.iter_mut().find(|(found, used)| !used && names.contains(found))?;
        *used = true;
        Some(name)
    }

    /// As [`Modifiers::one_of`], but an error if none is present.
    pub fn need(&mut self, names: &[&str]) -> Result<&'a str> {
        let expected = || self.place.error(format!("`{}` wants one of .{}", self.name, names.join(", .")));
        let error = expected();
        self.one_of(names).ok_or(error)
    }

    /// Consumes the next type, if there is one.
    pub fn ty_or_none(&mut self) -> Option<Type> {
        let (name, used) = self.list.iter_mut().find(|(found, used)| !used && Type::from_name(found).is_some())?;
        *used = true;
        Type::from_name(name)
    }

    /// Consumes the next type; an error if there is none.
    pub fn ty(&mut self) -> Result<Type> {
        let error = self.place.error(format!("`{}` wants a type that is supported", self.full()));
        self.ty_or_none().ok_or(error)
    }

    /// Whether a floating-point type is among the modifiers.
    pub fn has_float(&self) -> bool {
        self.list.iter().any(|(name, _)| Type::from_name(name).is_some_and(Type::is_float))
    }

    /// Consumes the modifiers for which `ignore` holds.
    pub fn ignore(&mut self, ignore: impl Fn(&str) -> bool) {
        self.list.iter_mut().filter(|(name, _)| ignore(name)).for_each(|(_, used)| *used = true);
    }

    pub fn full(&self) -> String {
        self.list.iter().fold(self.name.to_owned(), |name, (part, _)| format!("{name}.{part}"))
    }

    pub fn unsupported<T>(&self) -> Result<T> {
        Err(self.place.error(format!("`{}` is not supported", self.full())))
    }

    fn finish(&self) -> Result<()> {
        match self.list.iter().find(|(_, used)| !used) {
            None => Ok(()),
            Some((name, _)) => Err(self.place.error(format!("`.{name}` of `{}` is not supported", self.full()))),
        }
    }
}

impl<'a> Parser<'a> {
    /// `{ … }` of a kernel.
    pub(super) fn body(&mut self, builder: &mut Builder<'a>) -> Result<()> {
        let begin = self.place();
        if !self.accept(b'{') {
            return self.error("`{`");
        }
        builder.open();
        let mut depth = 1;
        while depth > 0 {
            let Token { kind, place } = self.tokens[self.at];
            match kind {
                Kind::Sign(b'{') => {
                    self.next();
                    builder.open();
                    depth += 1;
                }
                Kind::Sign(b'}') => {
                    self.next();
                    builder.close();
                    depth -= 1;
                }
                Kind::Sign(b';') => {
                    self.next();
                }
                Kind::Dot("reg") => self.registers(builder)?,
                Kind::Dot("shared") => {
                    self.next();
                    let variable = self.declared()?;
                    self.expect(b';')?;
                    let what = builder.place_shared(variable.bytes(), variable.align.max(variable.ty.bytes()));
                    builder.declare(variable.name.to_owned(), what, place)?;
                }
                Kind::Dot("loc") => self.loc(builder)?,
                Kind::Dot("pragma") => self.pragma()?,
                Kind::Dot(name) => return Err(place.error(format!("`.{name}` is not supported in a kernel"))),
                Kind::Name(name) if self.tokens[self.at + 1].kind == Kind::Sign(b':') => {
                    self.next();
                    self.next();
                    builder.label(name, place)?;
                }
                Kind::Name(_) | Kind::Sign(b'@') => self.instruction(builder)?,
                Kind::End => return Err(begin.error("the body that begins here has no `}`")),
                _ => return self.error("an instruction, a declaration or `}`"),
            }
        }
        // Threads that reach the end exit.
        builder.push(crate::ops::Op::Exit, crate::Class::Control, 0, None, self.place().line);
        Ok(())
    }

    fn registers(&mut self, builder: &mut Builder<'a>) -> Result<()> {
        self.next();
        if let Kind::Dot(name @ ("v2" | "v4")) = self.peek() {
            return Err(self.place().error(format!("registers of .{name} are not supported")));
        }
        let ty = self.ty()?;
        loop {
            let place = self.place();
            let name = self.name("the name of a register")?;
            let mut count = None;
            if self.accept(b'<') {
                count = Some(self.small("a number of registers")?);
                self.expect(b'>')?;
            }
            builder.declare_registers(ty, name, count, place)?;
            if !self.accept(b',') {
                return self.expect(b';');
            }
        }
    }

    /// `.loc file line column`, perhaps with `, function_name …, inlined_at …`.
    fn loc(&mut self, builder: &mut Builder<'a>) -> Result<()> {
        self.next();
        let file = self.small("the number of a file")?;
        let line = self.small("a line")?;
        self.int("a column")?;
        while self.accept(b',') {
            // The rest of the directive: only names, signs and numbers follow before the next statement.
            while matches!(self.peek(), Kind::Name("function_name" | "inlined_at")) {
                self.next();
                while matches!(self.peek(), Kind::Name(_) | Kind::Sign(b'+') | Kind::Int(_))
                    && self.tokens[self.at + 1].kind != Kind::Sign(b':')
                {
                    self.next();
                }
            }
        }
        builder.source = Some((file, line));
        Ok(())
    }

    fn instruction(&mut self, builder: &mut Builder<'a>) -> Result<()> {
        let mut guard = None;
        if self.accept(b'@') {
            let arg = self.operand()?;
            guard = Some(builder.pred(&arg)?);
        }
        let place = self.place();
        let name = self.name("an instruction")?;
        let mut list = Vec::new();
        while let Kind::Dot(part) = self.peek() {
            self.next();
            list.push((part, false));
        }
        let mut args = Vec::new();
        while self.peek() != Kind::Sign(b';') {
            args.push(self.operand()?);
            if !self.accept(b',') && self.peek() != Kind::Sign(b';') {
                return self.error("`,` or `;`");
            }
        }
        self.next();
        let mut modifiers = Modifiers { name, place, list };
        let (op, class, flops) = builder.decode(&mut modifiers, &args)?;
        modifiers.finish()?;
        builder.push(op, class, flops, guard, place.line);
        Ok(())
    }

    fn operand(&mut self) -> Result<Arg<'a>> {
        let first = self.simple_operand()?;
        if !self.accept(b'|') {
            return Ok(first);
        }
        let second = self.simple_operand()?;
        let place = first.place;
        Ok(Arg { kind: ArgKind::Pair(Box::new(first), Box::new(second)), place })
    }

    fn simple_operand(&mut self) -> Result<Arg<'a>> {
        let Token { kind, place } = self.next();
        let kind = match kind {
            Kind::Sign(b'!') => ArgKind::Not(Box::new(self.simple_operand()?)),
            Kind::Sign(b'-') => ArgKind::Number(self.next().kind, true),
            Kind::Int(_) | Kind::F32(_) | Kind::F64(_) => ArgKind::Number(kind, false),
            Kind::Sign(b'{') => {
                let mut parts = Vec::new();
                while !self.accept(b'}') {
                    parts.push(self.simple_operand()?);
                    if !self.accept(b',') && self.peek() != Kind::Sign(b'}') {
                        return self.error("`,` or `}`");
                    }
                }
                ArgKind::Vector(parts)
            }
            Kind::Sign(b'[') => {
                // The offset after a name is always an address offset.
                let mut base = self.simple_operand()?;
                let mut offset = 0;
                if let ArgKind::Name(_, by) = &mut base.kind {
                    offset = std::mem::take(by);
                }
                self.expect(b']')?;
                ArgKind::Address(Box::new(base), offset)
            }
            Kind::Name(name) if is_special(name) => {
                let part = match self.peek() {
                    Kind::Dot(part @ ("x" | "y" | "z" | "w")) => {
                        self.next();
                        Some(part)
                    }
                    _ => None,
                };
                ArgKind::Special(name, part)
            }
            Kind::Name(name) => ArgKind::Name(name, self.offset()?),
            found => return Err(place.error(format!("expected an operand, found {found}"))),
        };
        Ok(Arg { kind, place })
    }

    /// `+4`, `-4`, `+-4` or nothing.
    fn offset(&mut self) -> Result<i64> {
        let negative = match self.peek() {
            Kind::Sign(sign @ (b'+' | b'-')) => {
                self.next();
                sign == b'-' || self.accept(b'-')
            }
            _ => return Ok(0),
        };
        let value = self.int("an offset")? as i64;
        Ok(if negative { value.wrapping_neg() } else { value })
    }
}

/// Names of special registers. Ordinary registers may begin with `%` too.
fn is_special(name: &str) -> bool {
    const NAMES: [&str; 24] = [
        "%tid",
        "%ntid",
        "%ctaid",
        "%nctaid",
        "%laneid",
        "%warpid",
        "%nwarpid",
        "%smid",
        "%nsmid",
        "%gridid",
        "%lanemask_eq",
        "%lanemask_lt",
        "%lanemask_le",
        "%lanemask_gt",
        "%lanemask_ge",
        "%clock",
        "%clock_hi",
        "%clock64",
        "%globaltimer",
        "%globaltimer_lo",
        "%globaltimer_hi",
        "%dynamic_smem_size",
        "%total_smem_size",
        "WARP_SZ",
    ];
    NAMES.contains(&name)
}

impl<'a> Arg<'a> {
    /// The elements of `{a, b}`, or the operand itself.
    pub fn parts(&self) -> &[Arg<'a>] {
        match &self.kind {
            ArgKind::Vector(parts) => parts,
            _ => std::slice::from_ref(self),
        }
    }
}

impl Builder<'_> {
    /// Offset and size of the parameter in `[name + offset]`.
    pub fn param_offset(&self, arg: &Arg<'_>) -> Result<(u32, usize)> {
        let ArgKind::Address(base, offset) = &arg.kind else {
            return Err(arg.place.error("expected a parameter in `[ ]`"));
        };
        let ArgKind::Name(name, _) = &base.kind else {
            return Err(base.place.error("expected the name of a parameter"));
        };
        let Some(param) = self.kernel.params.iter().find(|param| param.name == *name) else {
            return Err(base.place.error(format!("there is no parameter `{name}`")));
        };
        match u32::try_from(*offset) {
            Ok(offset) if (offset as usize) < param.bytes => {
                Ok((param.offset as u32 + offset, param.bytes - offset as usize))
            }
            _ => Err(arg.place.error(format!("offset {offset} lies outside of `{name}` ({} bytes)", param.bytes))),
        }
    }
}
