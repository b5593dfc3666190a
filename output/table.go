package output

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"charm.land/lipgloss/v2"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Column is one column of a table.
type Column struct {
	Name  string
	Right bool // numbers: aligned to the right
	Wide  bool // only with -w wide
	// Keep says that a narrow terminal must not cut this column.
	Keep bool
}

// Table is how people see a result. Every row has a cell for every column.
type Table struct {
	Columns []Column
	Rows    [][]string
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
// the widest columns are cut, marked by "…", until a line fits; a pipe (width 0)
// gets whole values.
func (t Table) render(width int, wide, header, color bool) (string, error) {
	var cols []int
	for i, c := range t.Columns {
		if wide || !c.Wide {
			cols = append(cols, i)
		}
	}
	head := make([]string, len(cols))
	widths := make([]int, len(cols))
	for j, i := range cols {
		if header {
			head[j] = t.Columns[i].Name
		}
		widths[j] = utf8.RuneCountInString(head[j])
	}
	rows := make([][]string, len(t.Rows))
	for r, row := range t.Rows {
		if len(row) != len(t.Columns) {
			return "", fmt.Errorf("table row %d has %d cells, want %d", r, len(row), len(t.Columns))
		}
		rows[r] = make([]string, len(cols))
		for j, i := range cols {
			rows[r][j] = CleanLine(row[i])
			widths[j] = max(widths[j], lipgloss.Width(rows[r][j]))
		}
	}
	if width > 0 {
		t.fit(cols, widths, width)
		for _, row := range rows {
			for j := range row {
				row[j] = cut(row[j], widths[j])
			}
		}
	}
	return t.write(cols, head, rows, header, color)
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

// fit narrows the widest columns that may be cut until the line fits.
func (t Table) fit(cols, widths []int, width int) {
	total := gap * (len(cols) - 1)
	for _, w := range widths {
		total += w
	}
	for total > width {
		widest := -1
		for j, i := range cols {
			if !t.Columns[i].Keep && widths[j] > minWidth && (widest < 0 || widths[j] > widths[widest]) {
				widest = j
			}
		}
		if widest < 0 {
			return // nothing left to cut: the terminal wraps
		}
		second := minWidth
		for j, i := range cols {
			if j != widest && !t.Columns[i].Keep && widths[j] < widths[widest] {
				second = max(second, widths[j])
			}
		}
		n := max(min(total-width, widths[widest]-second), 1)
		widths[widest] -= n
		total -= n
	}
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
