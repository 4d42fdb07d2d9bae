package server

import (
	"net/http"
	"strconv"

	"github.com/labstack/echo/v4"

	"kl/fault"
	"kl/wire"
)

// answer sends a JSON document of the control API.
func answer(c echo.Context, v any) error { return answerWith(c, http.StatusOK, v) }

// created answers with what was made.
func created(c echo.Context, v any) error { return answerWith(c, http.StatusCreated, v) }

func answerWith(c echo.Context, status int, v any) error {
	c.Response().Header().Set(echo.HeaderCacheControl, "no-store")
	return c.JSON(status, v)
}

// listOf makes the form of listings out of items that need no pages.
func listOf[T any](items []T) wire.List[T] {
	if items == nil {
		items = []T{}
	}
	return wire.List[T]{Items: items}
}

const (
	defaultPage = 100
	maxPage     = 1000
)

// page reads the parameters of a listing.
func page(c echo.Context) (cursor string, limit int, err error) {
	limit = defaultPage
	if v := c.QueryParam("limit"); v != "" {
		limit, err = strconv.Atoi(v)
		if err != nil || limit < 1 || limit > maxPage {
			return "", 0, fault.New(fault.ParameterInvalid, "limit is not a number from 1 to %d", maxPage).
				WithNext("leave limit out for %d items", defaultPage)
		}
	}
	return c.QueryParam("cursor"), limit, nil
}
