"""What schemas of the API share."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import GenericAlias
from typing import Any

from pydantic import GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from models.spec import Spec


@dataclass(frozen=True)
class DescribedBy:
    """Marks plain JSON as the document of a class whose import needs torch.

    Clients read the JSON as it is. The class is looked up when the OpenAPI document is made.
    """

    find: Callable[[], Any]

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The JSON schema of that class."""
        # As an item of a list, since only a model within another is named by a reference.
        listed: Any = GenericAlias(list, (self.find(),))
        return handler(TypeAdapter(listed).core_schema)["items"]


def without_titles_of_references(schema: dict[str, Any]) -> None:
    """Take the titles off fields that are documents: those have titles of their own."""
    for field in schema["properties"].values():
        if "$ref" in field:
            field.pop("title", None)


class ByName(Spec):
    """A document whose fields are also read by name, as in `links["report"]`."""

    def __getitem__(self, name: str) -> Any:
        """The value of a field.

        Raises:
            KeyError: there is no such field.
        """
        if name not in self:
            raise KeyError(name)
        return getattr(self, name)

    def keys(self) -> Iterator[str]:
        """The names of the fields."""
        return iter(type(self).model_fields)

    def items(self) -> Iterator[tuple[str, Any]]:
        """The fields with their values."""
        return iter(self)

    def __contains__(self, name: object) -> bool:
        """Whether there is a field of that name."""
        return name in type(self).model_fields

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, or the default where there is no such field."""
        return getattr(self, name) if name in self else default
