package cli

import (
	"fmt"
	"time"
)

// Age writes how long ago an RFC 3339 time was, as kubectl does: the two
// largest units at most. It returns "" for a time that cannot be read.
func Age(now time.Time, timestamp string) string {
	t, err := time.Parse(time.RFC3339, timestamp)
	if err != nil {
		return ""
	}
	d := now.Sub(t)
	if d < 0 {
		return "0s"
	}
	days := int(d.Hours() / 24)
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return two(int(d.Minutes()), "m", int(d.Seconds())%60, "s")
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 8*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "m")
	case days < 2:
		return fmt.Sprintf("%dh", int(d.Hours()))
	case days < 8:
		return two(days, "d", int(d.Hours())%24, "h")
	case days < 2*365:
		return fmt.Sprintf("%dd", days)
	case days < 8*365:
		return two(days/365, "y", days%365, "d")
	default:
		return fmt.Sprintf("%dy", days/365)
	}
}

func two(a int, unit string, b int, small string) string {
	if b == 0 {
		return fmt.Sprintf("%d%s", a, unit)
	}
	return fmt.Sprintf("%d%s%d%s", a, unit, b, small)
}
