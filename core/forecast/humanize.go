package forecast

import (
	"fmt"
	"math"
	"strings"

	"github.com/asrconfig/asrconfig-go/core/units"
)

// timeLeft formats the remaining steps and time.
func timeLeft(steps, seconds float64) string {
	if steps < 0.5 {
		return "at any moment"
	}
	if math.IsNaN(seconds) {
		return fmt.Sprintf("in about %s", counted(steps, "step"))
	}
	return fmt.Sprintf("in about %s (%s)", counted(steps, "step"), units.About(seconds))
}

func counted(n float64, noun string) string {
	if n = math.Round(n); n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprintf("%.0f %ss", n, noun)
}
