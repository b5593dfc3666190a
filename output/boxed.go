package output

import (
	"bytes"
	"fmt"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// Boxed is a table as etcdutl draws it: lines around every cell, the header in
// capitals, rows aligned to the right. It is for its name alone; everything of ours is
// a Table.
func Boxed(header []string, rows [][]string) (string, error) {
	var b bytes.Buffer
	t := tablewriter.NewTable(&b, tablewriter.WithConfig(tablewriter.NewConfigBuilder().WithRowAlignment(tw.AlignRight).Build()))
	t.Header(header)
	if err := t.Bulk(rows); err != nil {
		return "", fmt.Errorf("lay out table: %w", err)
	}
	if err := t.Render(); err != nil {
		return "", fmt.Errorf("lay out table: %w", err)
	}
	return b.String(), nil
}
