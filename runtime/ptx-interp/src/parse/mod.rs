//! The PTX parser.

mod arith;
mod builder;
mod data;
mod statement;
mod sync;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ParseError;
use crate::lex::{Kind, Place, Token, tokens};
use crate::module::{Module, Param, Variable};
use crate::register_allocation::allocate_registers;
use crate::types::Type;
use builder::{Builder, Name};

static MODULES: AtomicU64 = AtomicU64::new(0);

impl Module {
    /// Parses PTX and decodes its kernels.
    ///
    /// # Errors
    /// The first place that is no PTX, or PTX that is not supported.
    pub fn parse(text: &str) -> Result<Module> {
        let mut module = names(text)?;
        module.kernels.iter_mut().for_each(allocate_registers);
        Ok(module)
    }
}

/// Parses a module without register allocation.
pub(crate) fn names(text: &str) -> Result<Module> {
    let module = Module {
        kernels: Vec::new(),
        variables: Vec::new(),
        files: Default::default(),
        id: MODULES.fetch_add(1, Ordering::Relaxed),
        target: String::new(),
    };
    let mut parser = Parser { tokens: tokens(text)?, at: 0, module, globals: Vec::new(), version: (0, 0) };
    parser.module()?;
    Ok(parser.module)
}

pub(crate) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    module: Module,
    /// Variables of the module, by name.
    globals: Vec<(&'a str, Name)>,
    version: (u32, u32),
}

type Result<T> = std::result::Result<T, ParseError>;

/// A declared variable: alignment, type, name, number of array elements (0: unspecified).
struct Declared<'a> {
    align: usize,
    ty: Type,
    name: &'a str,
    elems: Option<usize>,
}

impl Declared<'_> {
    fn bytes(&self) -> usize {
        self.ty.bytes() * self.elems.unwrap_or(1)
    }
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Kind<'a> {
        self.tokens[self.at].kind
    }

    fn place(&self) -> Place {
        self.tokens[self.at].place
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at];
        // The end token is never consumed.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn error<T>(&self, expected: &str) -> Result<T> {
        Err(self.place().error(format!("expected {expected}, found {}", self.peek())))
    }

    fn accept(&mut self, sign: u8) -> bool {
        let found = self.peek() == Kind::Sign(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: u8) -> Result<()> {
        if self.accept(sign) { Ok(()) } else { self.error(&format!("`{}`", sign as char)) }
    }

    fn accept_dot(&mut self, name: &str) -> bool {
        let found = self.peek() == Kind::Dot(name);
        if found {
            self.next();
        }
        found
    }

    fn name(&mut self, what: &str) -> Result<&'a str> {
        match self.peek() {
            Kind::Name(name) => {
                self.next();
                Ok(name)
            }
            _ => self.error(what),
        }
    }

    fn int(&mut self, what: &str) -> Result<u64> {
        match self.peek() {
            Kind::Int(value) => {
                self.next();
                Ok(value)
            }
            _ => self.error(what),
        }
    }

    fn small(&mut self, what: &str) -> Result<u32> {
        let place = self.place();
        let value = self.int(what)?;
        u32::try_from(value).map_err(|_| place.error(format!("{value} is too large for {what}")))
    }

    fn module(&mut self) -> Result<()> {
        loop {
            let place = self.place();
            match self.peek() {
                Kind::End => return Ok(()),
                Kind::Dot("version") => {
                    self.next();
                    let Kind::F64(bits) = self.next().kind else {
                        return Err(place.error("expected a version as 7.8 after `.version`"));
                    };
                    let tenths = (f64::from_bits(bits) * 10.0).round() as u32;
                    self.version = (tenths / 10, tenths % 10);
                    if tenths < 60 {
                        return Err(place.error("PTX before 6.0 has another meaning of warps and is not supported"));
                    }
                }
                Kind::Dot("target") => {
                    self.next();
                    self.module.target = self.name("a target as sm_80")?.to_owned();
                    while self.accept(b',') {
                        self.name("an option of the target")?;
                    }
                }
                Kind::Dot("address_size") => {
                    self.next();
                    if self.int("64")? != 64 {
                        return Err(place.error("only `.address_size 64` is supported"));
                    }
                }
                Kind::Dot("file") => self.file()?,
                Kind::Dot("visible" | "weak" | "common") => {
                    self.next();
                }
                Kind::Dot("extern") => {
                    self.next();
                    if !self.accept_dot("shared") {
                        return self.error("`.shared` after `.extern`");
                    }
                    let variable = self.declared()?;
                    self.expect(b';')?;
                    let align = variable.align.max(variable.ty.bytes());
                    self.globals.push((variable.name, Name::DynamicShared(align)));
                }
                Kind::Dot("global" | "const") => self.variable()?,
                Kind::Dot("shared") => {
                    self.next();
                    let variable = self.declared()?;
                    self.expect(b';')?;
                    let align = variable.align.max(variable.ty.bytes());
                    self.globals.push((variable.name, Name::ModuleShared { bytes: variable.bytes(), align }));
                }
                Kind::Dot("entry") => self.entry()?,
                Kind::Dot(name @ ("func" | "alias" | "tex" | "section" | "callprototype")) => {
                    return Err(place.error(format!("`.{name}` is not supported")));
                }
                _ => return self.error("a directive of a module as `.entry` or `.global`"),
            }
        }
    }

    /// `.file 1 "name" [, time, size]`.
    fn file(&mut self) -> Result<()> {
        self.next();
        let number = self.small("the number of a file")?;
        let Kind::Text(name) = self.peek() else { return self.error("the name of a file in quotes") };
        self.next();
        while self.accept(b',') {
            self.int("a number")?;
        }
        self.module.files.insert(number, name.to_owned());
        Ok(())
    }

    /// `.align N .type name[elems]`, after the state space.
    fn declared(&mut self) -> Result<Declared<'a>> {
        let mut align = 1;
        loop {
            if self.accept_dot("align") {
                let place = self.place();
                align = self.small("an alignment")? as usize;
                if !align.is_power_of_two() {
                    return Err(place.error("an alignment is a power of two"));
                }
            } else if !self.accept_dot("ptr") && !self.accept_dot("global") {
                break;
            }
        }
        let ty = self.ty()?;
        if self.accept_dot("ptr") {
            while matches!(self.peek(), Kind::Dot("global" | "const" | "shared" | "align")) {
                if self.next().kind == Kind::Dot("align") {
                    self.int("an alignment")?;
                }
            }
        }
        let place = self.place();
        let name = self.name("a name")?;
        let elems = if self.accept(b'[') {
            let elems = if self.peek() == Kind::Sign(b']') { 0 } else { self.int("a number of elements")? };
            self.expect(b']')?;
            if elems > 1 << 34 {
                return Err(place.error(format!("`{name}` has too many elements")));
            }
            Some(elems as usize)
        } else {
            None
        };
        Ok(Declared { align, ty, name, elems })
    }

    fn ty(&mut self) -> Result<Type> {
        match self.peek() {
            Kind::Dot(name) => match Type::from_name(name) {
                Some(ty) => {
                    self.next();
                    Ok(ty)
                }
                None => self.error("a type that is supported, as `.f32`"),
            },
            _ => self.error("a type as `.f32`"),
        }
    }

    /// `.global` or `.const` with an initialiser.
    fn variable(&mut self) -> Result<()> {
        let constant = self.next().kind == Kind::Dot("const");
        let place = self.place();
        let Declared { align, ty, name, elems } = self.declared()?;
        let mut init = Vec::new();
        if self.accept(b'=') {
            if self.accept(b'{') {
                while !self.accept(b'}') {
                    self.init_value(ty, &mut init)?;
                    if !self.accept(b',') && self.peek() != Kind::Sign(b'}') {
                        return self.error("`,` or `}`");
                    }
                }
            } else {
                self.init_value(ty, &mut init)?;
            }
        }
        self.expect(b';')?;
        let bytes = match elems {
            Some(0) => init.len(),
            elems => ty.bytes() * elems.unwrap_or(1),
        };
        if init.len() > bytes {
            return Err(place.error(format!("`{name}` has more initial values than elements")));
        }
        if constant && bytes > 1 << 16 {
            return Err(place.error(format!("`{name}` does not fit into the 64 KiB of constant memory")));
        }
        let align = align.max(ty.bytes()) as u64;
        self.globals.push((name, Name::Variable(self.module.variables.len())));
        self.module.variables.push(Variable { name: name.to_owned(), constant, align, bytes, init });
        Ok(())
    }

    fn init_value(&mut self, ty: Type, init: &mut Vec<u8>) -> Result<()> {
        let negative = self.accept(b'-');
        let place = self.place();
        let bits = builder::number(self.next().kind, negative, ty).map_err(|message| place.error(message))?;
        init.extend_from_slice(&bits.to_le_bytes()[..ty.bytes()]);
        Ok(())
    }

    /// `.entry name (params) directives { body }`.
    fn entry(&mut self) -> Result<()> {
        let place = self.place();
        self.next();
        let name = self.name("the name of a kernel")?;
        if self.module.kernel(name).is_some() {
            return Err(place.error(format!("there are two kernels `{name}`")));
        }
        let mut builder = Builder::new(name, place.line, &self.globals);
        if self.accept(b'(') {
            let mut end = 0usize;
            while !self.accept(b')') {
                if !self.accept_dot("param") {
                    return self.error("`.param`");
                }
                let declared = self.declared()?;
                let offset = end.next_multiple_of(declared.align.max(declared.ty.bytes()));
                let bytes = declared.bytes();
                end = offset + bytes;
                let param =
                    Param { name: declared.name.to_owned(), ty: declared.ty, elems: declared.elems, offset, bytes };
                builder.kernel.params.push(param);
                if !self.accept(b',') && self.peek() != Kind::Sign(b')') {
                    return self.error("`,` or `)`");
                }
            }
            builder.kernel.params_bytes = end;
        }
        loop {
            match self.peek() {
                Kind::Dot(name @ ("maxntid" | "reqntid")) => {
                    self.next();
                    let mut threads = [1; 3];
                    for (axis, threads) in threads.iter_mut().enumerate() {
                        if axis > 0 && !self.accept(b',') {
                            break;
                        }
                        *threads = self.small("a number of threads")?;
                    }
                    let place = if name == "maxntid" {
                        &mut builder.kernel.max_threads
                    } else {
                        &mut builder.kernel.required_threads
                    };
                    *place = Some(threads);
                }
                Kind::Dot("minnctapersm" | "maxnctapersm" | "maxnreg") => {
                    self.next();
                    self.int("a number")?;
                }
                Kind::Dot("pragma") => self.pragma()?,
                _ => break,
            }
        }
        self.body(&mut builder)?;
        let kernel = builder.finish()?;
        self.module.kernels.push(kernel);
        Ok(())
    }

    fn pragma(&mut self) -> Result<()> {
        self.next();
        loop {
            match self.next() {
                Token { kind: Kind::Text(_), .. } => {}
                Token { place, .. } => return Err(place.error("expected a text after `.pragma`")),
            }
            if !self.accept(b',') {
                return self.expect(b';');
            }
        }
    }
}
