//! A table that fits its screen: one column gives way, the others are as wide as what is in them. Where too little is
//! left for it, it stands below its row.

use crate::screen::{Colour, Screen, columns, shortened};

/// Spaces between two columns.
const GAP: usize = 2;
/// The column that gives way is shortened to no less than this; below its row it has the whole width.
const NARROWEST: usize = 40;
/// Spaces before what stands below its row.
const INDENT: usize = 4;

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
    /// An empty table, whose column number `gives_way` has as much room as the others leave.
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
        let mut below = None;
        if let Some(screen_width) = screen.width {
            let others: usize = widths.iter().sum::<usize>() - widths[self.gives_way] + GAP * (N - 1);
            let room = screen_width.saturating_sub(others);
            if widths[self.gives_way] > room && room < NARROWEST {
                below = Some(screen_width.saturating_sub(INDENT + 1));
            } else {
                widths[self.gives_way] = widths[self.gives_way].min(room);
            }
        }
        let mut text = String::new();
        let header = self.header.map(|name| Cell::coloured(name, Colour::Dim));
        for (number, row) in std::iter::once(&header).chain(&self.rows).enumerate() {
            let in_line = |at: &usize| below.is_none() || *at != self.gives_way;
            let cells: Vec<_> = (0..N).filter(in_line).map(|at| (&row[at], widths[at])).collect();
            render_row(&mut text, &cells, screen);
            if let Some(width) = below.filter(|_| number > 0) {
                let cell =
                    Cell { text: shortened(&row[self.gives_way].text, width), ..row[self.gives_way].clone() };
                text.push_str(&" ".repeat(INDENT));
                render_row(&mut text, &[(&cell, width)], screen);
            }
        }
        text
    }
}

fn render_row(text: &mut String, cells: &[(&Cell, usize)], screen: Screen) {
    for (at, (cell, width)) in cells.iter().enumerate() {
        let shown = shortened(&cell.text, *width);
        let padding = if at + 1 == cells.len() { 0 } else { width - columns(&shown) + GAP };
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
    fn a_long_cell_is_shortened_where_enough_of_it_stays() {
        let mut table = table();
        table.push([Cell::plain("apr_3"), Cell::plain("x".repeat(200)), Cell::plain("2h")]);
        let text = table.render(Screen { width: Some(60), has_colour: false });
        assert!(text.lines().all(|line| columns(line) <= 60), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.contains("xx…  2h")), "{text}");
    }

    #[test]
    fn a_narrow_screen_gives_the_column_lines_of_its_own() {
        let text = table().render(Screen { width: Some(30), has_colour: false });
        assert_eq!(
            text,
            "ID      LEFT\n\
             apr_1   9m\n    Run `cargo publish --tok…\n\
             apr_22  1h\n    Run `漢字`\n"
        );
    }
}
