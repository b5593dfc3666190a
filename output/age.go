package output

import (
	"fmt"
	"time"
)

// Age writes a duration as kubectl writes the age of an object, with at most two units:
// 45s, 12m, 5h30m, 3d4h, 90d.
func Age(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d < 0:
		return "-" + Age(-d)
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 8*day:
		return fmt.Sprintf("%dd%dh", int(d/day), int(d.Hours())%24)
	}
	return fmt.Sprintf("%dd", int(d/day))
}
