package inspect

import "errors"

var errNoHistory = errors.New("this source has no history")
