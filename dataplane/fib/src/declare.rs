//! Declares constants, kinds and rows in Rust and, as text, in C.

use std::fmt::Write as _;

/// A type of a field.
pub(crate) trait Field {
    /// Returns the declaration of a field of this type in C.
    fn declare(name: &str) -> String;
}

macro_rules! integers {
    ($($rust:ty: $c:literal,)*) => {
        $(impl Field for $rust {
            fn declare(name: &str) -> String {
                format!("{} {name}", $c)
            }
        })*
    };
}

integers! { u8: "__u8", u16: "__u16", u32: "__u32", u64: "__u64", }

impl<T: Field, const N: usize> Field for [T; N] {
    fn declare(name: &str) -> String {
        T::declare(&format!("{name}[{N}]"))
    }
}

/// Adds documentation as a comment of C.
pub(crate) fn comment(text: &mut String, indent: &str, lines: &[&str]) {
    let _ = writeln!(text, "{indent}/*{} */", lines.join(&format!("\n{indent} *")));
}

/// Declares constants with the same names in Rust and C.
macro_rules! constants {
    ($($(#[doc = $doc:literal])* pub const $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[doc = $doc])* pub const $name: $type = $value;)*

        fn constant_declarations(text: &mut String) {
            use std::fmt::Write as _;
            $(
                text.push('\n');
                $crate::declare::comment(text, "", &[$($doc),*]);
                let _ = writeln!(text, "#define {} {}", stringify!($name), $name);
            )*
        }
    };
}

/// Kinds: enumerations of one byte. In C the names of their values are constants, which is why each has a second name. The
/// first value is 0, the kind of a row that is not there.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])* pub enum $name:ident {
        $($(#[doc = $value_doc:literal])* $value:ident = $number:literal as $c:ident,)*
    })*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, zerocopy::Immutable, zerocopy::IntoBytes)]
            #[repr(u8)]
            pub enum $name { $($(#[doc = $value_doc])* $value = $number,)* }

            impl Default for $name {
                fn default() -> Self {
                    [$(Self::$value),*][0]
                }
            }

            impl $crate::declare::Field for $name {
                fn declare(name: &str) -> String {
                    u8::declare(name)
                }
            }
        )*

        fn kind_declarations(text: &mut String) {
            use std::fmt::Write as _;
            $(
                text.push('\n');
                $crate::declare::comment(text, "", &[$($doc),*]);
                let values = [$(format!("{} = {}", stringify!($c), $number)),*];
                let _ = writeln!(text, "enum {{ {} }};", values.join(", "));
            )*
        }
    };
}

/// Rows: structs without padding, of a stated size. In C each has the name that is given behind its own.
macro_rules! rows {
    ($($(#[doc = $doc:literal])* $(#[align($align:literal)])? pub struct $name:ident($c:ident, $size:literal bytes) {
        $($(#[doc = $field_doc:literal])* pub $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, zerocopy::Immutable, zerocopy::IntoBytes)]
            #[repr(C $(, align($align))?)]
            pub struct $name { $($(#[doc = $field_doc])* pub $field: $type,)* }

            const _: () = assert!(size_of::<$name>() == $size, "the stated size");

            impl $crate::declare::Field for $name {
                fn declare(name: &str) -> String {
                    format!("struct {} {name}", stringify!($c))
                }
            }
        )*

        fn row_declarations(text: &mut String) {
            use std::fmt::Write as _;
            use $crate::declare::{Field, comment};
            $(
                text.push('\n');
                comment(text, "", &[$($doc),*]);
                let _ = writeln!(text, "struct {} {{", stringify!($c));
                $(
                    comment(text, "\t", &[$($field_doc),*]);
                    let _ = writeln!(text, "\t{};", <$type>::declare(stringify!($field)));
                )*
                let (row, size) = (stringify!($c), size_of::<$name>());
                let _ = writeln!(text, "}};\n_Static_assert(sizeof(struct {row}) == {size}, \"struct {row}\");");
                $(
                    let (field, offset) = (stringify!($field), std::mem::offset_of!($name, $field));
                    let _ = writeln!(
                        text,
                        "_Static_assert(__builtin_offsetof(struct {row}, {field}) == {offset}, \"struct {row}, {field}\");"
                    );
                )*
            )*
        }
    };
}

pub(crate) use {constants, kinds, rows};
