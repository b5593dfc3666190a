package output

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Column is one column of a table.
type Column struct {
	Name  string
	Right bool // numbers: aligned to the right
	Wide  bool // only with -w wide
	// Bytes marks cells that hold a number of bytes: people see it with a unit,
	// simple and fields have the number.
	Bytes bool
	// Drop lets a terminal that is too narrow leave the column out.
	Drop bool
	// Wrap breaks a long cell into several lines on a terminal instead of cutting
	// it: what it says is the point of the table. It should be the last column.
	Wrap bool
	// Keep says that a narrow terminal must not cut this column.
	Keep bool
}

// Table is how people see a result. Every row has a cell for every column.
type Table struct {
	Columns []Column
	Rows    [][]string
	Footer  [][]string // sums, for people only
	// Empty is what to tell a person (on stderr) when there are no rows.
	Empty string
}

// Tabler is a view that people see as a table.
type Tabler interface{ Table() Table }

const (
	gap      = 3 // spaces between columns
	minWidth = 8 // a cut column keeps at least this much
)

// render writes t without borders, columns separated by spaces. With width > 0
// the widest columns are cut, marked by "…", until a line fits, and where that is
// not enough wide columns are left out from the right; a pipe (width 0) gets whole
// values.
func (t Table) render(width int, wide, header, color bool) (string, error) {
	var cols []int
	for i, c := range t.Columns {
		if wide || !c.Wide {
			cols = append(cols, i)
		}
	}
	all := slices.Concat(t.Rows, t.Footer)
	clean := make([][]string, len(all))
	for r, row := range all {
		if len(row) != len(t.Columns) {
			return "", fmt.Errorf("table row %d has %d cells, want %d", r, len(row), len(t.Columns))
		}
		clean[r] = make([]string, len(row))
		for i, cell := range row {
			if t.Columns[i].Bytes {
				cell = human(cell)
			}
			clean[r][i] = CleanLine(cell)
		}
	}
	widths := t.widths(cols, clean, header)
	for width > 0 && !t.fit(cols, widths, width) {
		last := len(cols) - 1
		for last >= 0 && !t.Columns[cols[last]].Wide && !t.Columns[cols[last]].Drop {
			last--
		}
		if last < 0 {
			break // nothing left to leave out: the terminal wraps
		}
		cols = slices.Delete(cols, last, last+1)
		widths = t.widths(cols, clean, header)
	}
	var rows [][]string
	for _, row := range clean {
		rows = append(rows, t.lines(row, cols, widths, width > 0)...)
	}
	head := make([]string, len(cols))
	for j, i := range cols {
		head[j] = t.Columns[i].Name
		if width > 0 {
			head[j] = cut(head[j], widths[j])
		}
	}
	return t.write(cols, head, rows, header, color)
}

// lines lays out one row: one line, or several where a cell wraps.
func (t Table) lines(row []string, cols, widths []int, narrow bool) [][]string {
	lines := [][]string{make([]string, len(cols))}
	for j, i := range cols {
		pieces := []string{row[i]}
		switch {
		case narrow && t.Columns[i].Wrap:
			pieces = strings.Split(ansi.Hardwrap(ansi.Wrap(row[i], widths[j], "/,.=[]{}\":"), widths[j], true), "\n")
		case narrow:
			pieces[0] = cut(row[i], widths[j])
		}
		for n, p := range pieces {
			if n == len(lines) {
				lines = append(lines, make([]string, len(cols)))
			}
			lines[n][j] = p
		}
	}
	return lines
}

// widths are the natural widths of cols.
func (t Table) widths(cols []int, rows [][]string, header bool) []int {
	w := make([]int, len(cols))
	for j, i := range cols {
		if header {
			w[j] = utf8.RuneCountInString(t.Columns[i].Name)
		}
		for _, row := range rows {
			w[j] = max(w[j], lipgloss.Width(row[i]))
		}
	}
	return w
}

func (t Table) write(cols []int, head []string, rows [][]string, header, color bool) (string, error) {
	align := make(tw.Alignment, len(cols))
	for j, i := range cols {
		align[j] = tw.AlignLeft
		if t.Columns[i].Right {
			align[j] = tw.AlignRight
		}
	}
	cell := func() tw.CellConfig {
		return tw.CellConfig{
			Alignment:  tw.CellAlignment{PerColumn: align},
			Formatting: tw.CellFormatting{AutoWrap: tw.WrapNone, AutoFormat: tw.Off},
			Padding:    tw.CellPadding{Global: tw.Padding{Right: strings.Repeat(" ", gap), Overwrite: true}},
		}
	}
	var b bytes.Buffer
	w := tablewriter.NewTable(&b,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Symbols: tw.NewSymbols(tw.StyleNone),
			Settings: tw.Settings{
				Lines:      tw.LinesNone,
				Separators: tw.SeparatorsNone,
			},
		})),
		tablewriter.WithConfig(tablewriter.Config{Header: cell(), Row: cell(), Behavior: tw.Behavior{TrimSpace: tw.Off, TrimLine: tw.Off}}),
	)
	if header {
		w.Header(head)
	}
	if err := w.Bulk(rows); err != nil {
		return "", fmt.Errorf("lay out table: %w", err)
	}
	if err := w.Render(); err != nil {
		return "", fmt.Errorf("lay out table: %w", err)
	}
	var out strings.Builder
	bold := lipgloss.NewStyle().Bold(true)
	first := true
	for line := range strings.Lines(b.String()) {
		line = strings.TrimRight(line, " \n")
		if header && first && color {
			line = bold.Render(line)
		}
		first = false
		out.WriteString(line)
		out.WriteByte('\n')
	}
	return out.String(), nil
}

// fit narrows the widest columns that may be cut until the line fits; false: it
// cannot.
func (t Table) fit(cols, widths []int, width int) bool {
	total := gap * (len(cols) - 1)
	for _, w := range widths {
		total += w
	}
	for total > width {
		widest := -1
		for j, i := range cols {
			if !t.Columns[i].Keep && widths[j] > t.least(i) && (widest < 0 || widths[j] > widths[widest]) {
				widest = j
			}
		}
		if widest < 0 {
			return false
		}
		second := minWidth
		for j, i := range cols {
			if j != widest && !t.Columns[i].Keep && widths[j] < widths[widest] {
				second = max(second, widths[j])
			}
		}
		n := max(min(total-width, widths[widest]-max(second, t.least(cols[widest]))), 1)
		widths[widest] -= n
		total -= n
	}
	return true
}

// least is how narrow a column may get.
func (t Table) least(i int) int {
	if t.Columns[i].Wrap {
		return 3 * minWidth
	}
	return minWidth
}

func cut(s string, width int) string {
	if lipgloss.Width(s) <= width {
		return s
	}
	n := 0
	for i, r := range s {
		n += lipgloss.Width(string(r))
		if n > width-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// human writes a cell of bytes with a unit; what is no number stays.
func human(cell string) string {
	n, err := strconv.ParseInt(cell, 10, 64)
	if err != nil {
		return cell
	}
	return Bytes(n)
}

// Bytes writes a size with a binary unit: 0 B, 1.5 KiB, 2.0 GiB.
func Bytes(n int64) string {
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"} {
		f /= 1024
		if f < 1023.95 && f > -1023.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}
