//! `stria top` on a terminal: a screen whose rows and order keys choose.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ratatui_core::layout::{Constraint, Layout};
use ratatui_core::style::Stylize;
use ratatui_core::terminal::{Frame, Terminal};
use ratatui_core::text::{Line, Text};
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::{cursor, execute, terminal};

use super::sample::Sample;
use super::{By, Order, sort, table};

/// Time between two looks for keys, signals and new rates.
const LOOK_EACH: Duration = Duration::from_millis(100);
const KEYS: &str =
    "q end  b/B rows  j job  u user  c client  t target  k call  o order  space hold  up/down scroll";
const BYS: [By; 5] = [By::Job, By::User, By::Client, By::Target, By::Call];
const ORDERS: [Order; 3] = [Order::Time, Order::Bytes, Order::Requests];

/// The requests of one interval.
pub(super) struct Interval {
    pub came: Sample,
    pub seconds: f64,
    /// The target that did not answer.
    pub silent: Option<String>,
}

/// The interval that is shown, and its form.
pub(super) struct Screen {
    fsname: String,
    by: By,
    order: Order,
    /// New intervals are not shown.
    is_held: bool,
    /// Rows above the screen.
    skipped: usize,
    shown: Option<Interval>,
}

impl Screen {
    pub fn new(fsname: String, by: By, order: Order) -> Screen {
        Screen { fsname, by, order, is_held: false, skipped: 0, shown: None }
    }

    pub fn take(&mut self, interval: Interval) {
        if !self.is_held {
            self.shown = Some(interval);
        }
    }

    /// False: the user wants to end.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        let next_by = |step: usize| {
            let at = BYS.iter().position(|by| *by == self.by).unwrap_or(0);
            BYS[(at + step) % BYS.len()]
        };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('b') => self.show_by(next_by(1)),
            KeyCode::Char('B') => self.show_by(next_by(BYS.len() - 1)),
            KeyCode::Char('j') => self.show_by(By::Job),
            KeyCode::Char('u') => self.show_by(By::User),
            KeyCode::Char('c') => self.show_by(By::Client),
            KeyCode::Char('t') => self.show_by(By::Target),
            KeyCode::Char('k') => self.show_by(By::Call),
            KeyCode::Char('o') => {
                let at = ORDERS.iter().position(|order| *order == self.order).unwrap_or(0);
                self.order = ORDERS[(at + 1) % ORDERS.len()];
            }
            KeyCode::Char(' ') => self.is_held = !self.is_held,
            KeyCode::Down => self.skipped += 1,
            KeyCode::Up => self.skipped = self.skipped.saturating_sub(1),
            _ => {}
        }
        true
    }

    fn show_by(&mut self, by: By) {
        (self.by, self.skipped) = (by, 0);
    }

    /// A title, the table, and the keys.
    pub fn draw(&mut self, frame: &mut Frame) {
        let parts = Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]);
        let [top, middle, bottom] = parts.areas(frame.area());
        let held = if self.is_held { "  held" } else { "" };
        let (by, order) = (self.by.title().to_lowercase(), self.order.word());
        let over =
            self.shown.as_ref().map_or(String::new(), |shown| format!("  over {:.1} s", shown.seconds));
        let title = format!("{}  by {by}, ordered by {order}{over}{held}", self.fsname);
        frame.render_widget(Line::from(title).bold(), top);
        let lines = self.lines(usize::from(middle.height));
        frame.render_widget(Text::from(lines), middle);
        frame.render_widget(Line::from(KEYS).dim(), bottom);
    }

    /// The header, and the rows that have room.
    fn lines(&mut self, height: usize) -> Vec<Line<'static>> {
        let Some(shown) = &self.shown else { return vec![Line::from("counting...")] };
        let mut rows = shown.came.rows(self.by);
        sort(&mut rows, self.order);
        let mut lines = vec![];
        if let Some(why) = &shown.silent {
            lines.push(Line::from(why.clone()).bold());
        }
        if rows.is_empty() {
            lines.push(Line::from("no requests of jobs"));
            return lines;
        }
        let room = height.saturating_sub(lines.len() + 1);
        self.skipped = self.skipped.min(rows.len().saturating_sub(room));
        let visible = &rows[self.skipped..rows.len().min(self.skipped + room)];
        let text = table(self.by, visible, Some(shown.seconds));
        let mut of_table = text.lines().map(|line| Line::from(line.to_owned()));
        lines.extend(of_table.next().map(|head| head.reversed()));
        lines.extend(of_table);
        lines
    }
}

/// Shows intervals until a key or a signal ends it. `next` waits for an interval and gives it.
pub(super) fn run(mut screen: Screen, mut next: impl FnMut() -> Interval + Send + 'static) -> io::Result<()> {
    let is_ended = Arc::new(AtomicBool::new(false));
    // SIGHUP ends the process as it is: the terminal is gone, and a look for its keys would never return.
    signal_hook::flag::register(signal_hook::consts::SIGTERM, is_ended.clone())?;
    let (sender, intervals) = sync_channel(1);
    // It may wait for servers that are silent; the end of the process does not wait for it.
    std::thread::spawn(move || while sender.send(next()).is_ok() {});
    let _raw = Raw::begin()?;
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
    loop {
        while let Ok(interval) = intervals.try_recv() {
            screen.take(interval);
        }
        terminal.draw(|frame| screen.draw(frame))?;
        if is_ended.load(Ordering::SeqCst) {
            return Ok(());
        }
        if event::poll(LOOK_EACH)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
            && !screen.key(key)
        {
            return Ok(());
        }
    }
}

/// The terminal gives single keys and shows another page, until it is dropped or the process panics.
struct Raw;

impl Raw {
    fn begin() -> io::Result<Raw> {
        terminal::enable_raw_mode()?;
        let raw = Raw;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            Raw::end();
            before(panic);
        }));
        Ok(raw)
    }

    /// A terminal that is gone cannot be put back.
    fn end() {
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        Raw::end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::backend::TestBackend;

    fn text(screen: &mut Screen, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content().chunks(usize::from(width));
        cells
            .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    fn press(screen: &mut Screen, code: KeyCode) -> bool {
        screen.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn keys_choose_rows_and_order_and_end_it() {
        let mut screen = Screen::new("home".into(), By::Job, Order::Time);
        assert!(text(&mut screen, (100, 10))[1].starts_with("counting"));
        let jobs = [("4711", 3_000_000, 1), ("tar.1000", 1000, 90), ("cp.7", 2000, 5)];
        screen.take(Interval { came: Sample::of_jobs(&jobs), seconds: 2.0, silent: None });
        let seen = text(&mut screen, (100, 10));
        assert_eq!(seen[0], "home  by job, ordered by time  over 2.0 s");
        let first = |seen: &[String]| seen[2].split_whitespace().next().map(str::to_owned);
        assert!(seen[1].starts_with("JOB ") && seen[9].starts_with("q end"), "{seen:?}");
        assert_eq!(first(&seen).as_deref(), Some("4711"));
        assert!(press(&mut screen, KeyCode::Char('o')) && press(&mut screen, KeyCode::Char('o')));
        let seen = text(&mut screen, (100, 10));
        assert_eq!(first(&seen).as_deref(), Some("tar.1000"), "by requests: {seen:?}");
        // A row of room: the others come by scrolling, and no further.
        for _ in 0..9 {
            press(&mut screen, KeyCode::Down);
        }
        assert_eq!(first(&text(&mut screen, (100, 4))).as_deref(), Some("4711"));
        press(&mut screen, KeyCode::Char('b'));
        assert!(text(&mut screen, (100, 10))[1].starts_with("USER "));
        press(&mut screen, KeyCode::Char('B'));
        press(&mut screen, KeyCode::Char(' '));
        screen.take(Interval {
            came: Sample::of_jobs(&[]),
            seconds: 2.0,
            silent: Some("OST 3 is silent".into()),
        });
        let held = text(&mut screen, (100, 10));
        assert!(held[0].ends_with("held") && held[1].starts_with("JOB "), "{held:?}");
        press(&mut screen, KeyCode::Char(' '));
        screen.take(Interval {
            came: Sample::of_jobs(&[]),
            seconds: 2.0,
            silent: Some("OST 3 is silent".into()),
        });
        let seen = text(&mut screen, (100, 10));
        assert_eq!((&*seen[1], &*seen[2]), ("OST 3 is silent", "no requests of jobs"));
        // A terminal of hardly any size is no error.
        for size in [(1, 1), (3, 2), (20, 3)] {
            text(&mut screen, size);
        }
        assert!(!press(&mut screen, KeyCode::Char('q')) && !press(&mut screen, KeyCode::Esc));
        assert!(!screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
