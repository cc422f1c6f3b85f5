//! A table that fits its screen: one column gives way, the others are as wide as what is in them.

use crate::screen::{Colour, Screen, columns, shortened};

/// Spaces between two columns.
const GAP: usize = 2;
/// The column that gives way keeps at least this much.
const NARROWEST: usize = 16;

/// One cell.
#[derive(Clone, Debug)]
pub struct Cell {
    text: String,
    colour: Option<Colour>,
}

impl Cell {
    /// A cell in the screen's own colour.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), colour: None }
    }

    /// A cell in a colour.
    pub fn coloured(text: impl Into<String>, colour: Colour) -> Self {
        Self { text: text.into(), colour: Some(colour) }
    }
}

/// Rows under a header.
#[derive(Debug)]
pub struct Table<const N: usize> {
    header: [&'static str; N],
    gives_way: usize,
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    /// An empty table, whose column number `gives_way` is shortened when the screen is narrow.
    pub fn new(header: [&'static str; N], gives_way: usize) -> Self {
        Self { header, gives_way, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn push(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    /// The table as text.
    pub fn render(&self, screen: Screen) -> String {
        let mut widths = self.header.map(columns);
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(columns(&cell.text));
            }
        }
        if let Some(screen_width) = screen.width {
            let others: usize = widths.iter().sum::<usize>() - widths[self.gives_way] + GAP * (N - 1);
            let room = screen_width.saturating_sub(others).max(NARROWEST);
            widths[self.gives_way] = widths[self.gives_way].min(room);
        }
        let mut text = String::new();
        let header = self.header.map(|name| Cell::coloured(name, Colour::Dim));
        for row in std::iter::once(&header).chain(&self.rows) {
            render_row(&mut text, row, &widths, screen);
        }
        text
    }
}

fn render_row(text: &mut String, row: &[Cell], widths: &[usize], screen: Screen) {
    let last = row.len() - 1;
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let shown = shortened(&cell.text, *width);
        let padding = if at == last { 0 } else { width - columns(&shown) + GAP };
        match cell.colour {
            Some(colour) => text.push_str(&screen.paint(colour, &shown)),
            None => text.push_str(&shown),
        }
        text.push_str(&" ".repeat(padding));
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table<3> {
        let mut table = Table::new(["ID", "WHAT", "LEFT"], 1);
        table.push([Cell::plain("apr_1"), Cell::plain("Run `cargo publish --token x`"), Cell::plain("9m")]);
        table.push([Cell::plain("apr_22"), Cell::plain("Run `漢字`"), Cell::plain("1h")]);
        table
    }

    #[test]
    fn a_pipe_gets_every_cell_whole() {
        let text = table().render(Screen { width: None, has_colour: false });
        assert_eq!(
            text,
            "ID      WHAT                           LEFT\n\
             apr_1   Run `cargo publish --token x`  9m\n\
             apr_22  Run `漢字`                     1h\n"
        );
    }

    #[test]
    fn a_narrow_screen_shortens_one_column_only() {
        let text = table().render(Screen { width: Some(34), has_colour: false });
        assert_eq!(text.lines().nth(1), Some("apr_1   Run `cargo publish …  9m"));
        assert!(text.lines().all(|line| columns(line) <= 34), "{text}");
    }
}
