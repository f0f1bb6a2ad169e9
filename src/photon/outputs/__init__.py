"""Reads the published output of joiners: its files, their readable lengths, and the content of lines."""

from photon.outputs.cursor import Cursor, CursorUnreadable, OutputLog, Position
from photon.outputs.log.format import retired_bytes
from photon.outputs.next_read import CursorLost, end_of
from photon.outputs.output_places import KINDS, OutputPlace
from photon.outputs.published import OutputFile, PublishedDamaged, SlotOutput, read_slot, slot_states
from photon.outputs.ranges import FileRange, Lines, plan, read_range
from photon.outputs.reader import OutputBlock, Reader
from photon.outputs.records import OutputRecords, decode

__all__ = [
    "KINDS",
    "Cursor",
    "CursorLost",
    "CursorUnreadable",
    "FileRange",
    "Lines",
    "OutputBlock",
    "OutputFile",
    "OutputLog",
    "OutputPlace",
    "OutputRecords",
    "Position",
    "PublishedDamaged",
    "Reader",
    "SlotOutput",
    "decode",
    "end_of",
    "plan",
    "read_range",
    "read_slot",
    "retired_bytes",
    "slot_states",
]
