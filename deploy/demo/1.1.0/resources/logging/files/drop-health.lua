function drop_health(tag, timestamp, record)
  if record["message"] and string.find(record["message"], "GET /healthz", 1, true) then
    return -1, timestamp, record
  end
  return 0, timestamp, record
end
